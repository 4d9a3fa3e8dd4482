"""New projects: the files one begins with, and how they get into a folder without harming what is there."""
