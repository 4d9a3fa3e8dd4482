"""Every test of transports is run for each way processes are started."""

from tests.ecosystem.process.conftest import way

__all__ = ["way"]
