"""Facts and set-up of this process and machine."""
