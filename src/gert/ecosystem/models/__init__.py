"""Models of several vendors behind one port; nothing of a vendor is imported or contacted before it is asked."""
