"""Drive a recorded run again: resume, rerun, fork, abandon."""
