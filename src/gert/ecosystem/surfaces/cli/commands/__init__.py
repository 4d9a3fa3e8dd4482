"""One module per command, loaded when it is called."""
