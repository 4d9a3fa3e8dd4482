"""The documents authors write, one file each."""
