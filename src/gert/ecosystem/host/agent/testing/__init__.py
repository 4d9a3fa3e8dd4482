"""For people who test agents: models, tools and clocks that do what a test tells them."""
