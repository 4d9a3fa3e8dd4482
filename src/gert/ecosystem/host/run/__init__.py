"""Execute one run: drive the engine, answer its requests, record its events."""
