"""Settings, documents, policies, keys and platform facts that a run starts from."""
