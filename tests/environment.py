"""Environment of a test run; loaded as a pytest plugin before the settings are read."""

import atexit
import os
import shutil
import tempfile

# What this shell happens to set must not decide a test.
for name in [name for name in os.environ if name.startswith("GPUJOBS_")]:
    del os.environ[name]
os.environ |= {
    "GPUJOBS_SECRET_KEY": "test-key-" + "0123456789" * 5,
    "GPUJOBS_TLS": "0",
    "GPUJOBS_NODE": "gauss",
    "GPUJOBS_DATA_ROOT": tempfile.mkdtemp(prefix="gpujobs-data-"),
    "GPUJOBS_RUNNER": "process",
    "GPUJOBS_INVENTORY": "simulated",
    # Static files are served unhashed: no collectstatic before a test run.
    "GPUJOBS_DEBUG": "1",
    # Playwright's synchronous API runs an event loop in the thread of the tests.
    "DJANGO_ALLOW_ASYNC_UNSAFE": "true",
}
atexit.register(shutil.rmtree, os.environ["GPUJOBS_DATA_ROOT"], ignore_errors=True)
