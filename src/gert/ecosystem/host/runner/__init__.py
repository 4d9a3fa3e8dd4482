"""Skill calls: plans, their authorization, the one-shot runner and its records."""
