"""The runbook language: documents, from YAML to models, and their validation."""
