"""Views of a running run."""
