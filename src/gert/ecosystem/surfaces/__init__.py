"""Where people and machines meet gert: parse, call the host, render."""
