from tests.scheduler.conftest import gpu, runner

__all__ = ["gpu", "runner"]
