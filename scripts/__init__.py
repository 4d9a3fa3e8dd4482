"""Scripts of the project: set-up, generated docs, the demo."""
