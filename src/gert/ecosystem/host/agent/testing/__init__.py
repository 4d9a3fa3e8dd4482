"""Models, tools and clocks for tests of agents."""
