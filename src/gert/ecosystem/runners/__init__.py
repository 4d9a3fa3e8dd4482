"""The one-shot runner: verify a plan, resolve its secret, execute it, write artifacts, exit."""
