"""Parts that a Python program brings to its runs: approvals, inputs, tools and the verification of signatures."""
