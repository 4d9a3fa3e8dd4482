"""`python -m gert.ecosystem.surfaces.runner` is `gert-runner`."""

from gert.ecosystem.surfaces.runner import run

run()
