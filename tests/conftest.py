"""Properties are judged by what they find, not by how long a busy machine takes to find it."""

from hypothesis import HealthCheck, settings

settings.register_profile("gert", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gert")
