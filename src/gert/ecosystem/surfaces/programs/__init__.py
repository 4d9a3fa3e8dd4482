"""Programs that gert ships beside `gert`: the model provider, and extension runners for debates."""
