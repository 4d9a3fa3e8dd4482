"""Agents: the loop of model and tool steps, with memory, skills, compaction, gates and sub-agents."""
