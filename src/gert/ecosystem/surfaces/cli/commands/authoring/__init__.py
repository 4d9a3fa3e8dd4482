"""Commands for authors: create, check, explain and test documents."""
