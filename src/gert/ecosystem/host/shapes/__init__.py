"""The JSON that gert prints and returns: one shape per document, for `--json`, `gert-mcp` and `gert serve`.

A key that a shape marks as `NotRequired` is left out where it says nothing, or where it would make a result too long.
The lines `name: text` below the first sentence of a docstring describe keys.
"""
