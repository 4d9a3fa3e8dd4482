"""Properties are judged by what they find, not by how long a busy machine takes to find it."""

from hypothesis import HealthCheck, settings
from tests.postgres import dsn, durable_dsn, durable_postgres, own_server, postgres

__all__ = ["dsn", "durable_dsn", "durable_postgres", "own_server", "postgres"]

settings.register_profile("gert", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gert")
