"""Models as tools: one question to a model, judges and reducers of what several agents said (ecosystem-v0 §18)."""
