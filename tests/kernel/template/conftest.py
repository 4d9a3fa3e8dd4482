"""Property tests run on shared machines, so a slow example is not a failure."""

from hypothesis import settings

settings.register_profile("kernel", deadline=None, max_examples=80)
settings.load_profile("kernel")
