"""One file per kind of step; the tables in `gert.kernel.engine.walk` list them."""
