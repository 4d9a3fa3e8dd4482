"""Runners: skills, plans, authorization and records; no secret and no socket."""
