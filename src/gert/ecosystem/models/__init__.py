"""Adapters to model vendors behind one port; a vendor is imported and contacted only when it is used."""
