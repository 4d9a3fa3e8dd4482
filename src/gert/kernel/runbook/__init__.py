"""The runbook language: documents, from YAML to models, with everything that can be said about them."""
