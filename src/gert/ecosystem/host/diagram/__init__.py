"""Pictures of runbooks and runs: steps, branches, lanes, loops, approvals and risk at a glance."""
