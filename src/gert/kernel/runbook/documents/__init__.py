"""The documents that authors write, one module each."""
