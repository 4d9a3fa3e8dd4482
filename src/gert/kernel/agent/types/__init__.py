"""Documented types, and events as pydantic models."""
