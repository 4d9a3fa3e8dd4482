"""One module per kind of step; the tables in `gert.kernel.engine.step` list them."""
