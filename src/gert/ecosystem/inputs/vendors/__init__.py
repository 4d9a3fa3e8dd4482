"""Providers that come with gert: programs of their own, which speak the protocol of any other provider."""
