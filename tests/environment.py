"""Environment of a test run; loaded as a pytest plugin before the settings are read."""

import os
import tempfile

os.environ.setdefault("GPUJOBS_SECRET_KEY", "test-key-" + "0123456789" * 5)
os.environ.setdefault("GPUJOBS_TLS", "0")
os.environ.setdefault("GPUJOBS_NODE", "gauss")
os.environ.setdefault("GPUJOBS_DATA_ROOT", tempfile.mkdtemp(prefix="gpujobs-data-"))
os.environ.setdefault("GPUJOBS_RUNNER", "process")
os.environ.setdefault("GPUJOBS_INVENTORY", "simulated")
# Static files are served unhashed: no collectstatic before a test run.
os.environ.setdefault("GPUJOBS_DEBUG", "1")
# Playwright's synchronous API runs an event loop in the thread of the tests.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
