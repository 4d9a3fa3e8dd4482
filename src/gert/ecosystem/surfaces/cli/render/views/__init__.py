"""The lines that views of a run show: as it runs, its timeline, a dry run."""
