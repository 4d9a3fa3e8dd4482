"""`gert-tui`: run an incident from one screen."""
