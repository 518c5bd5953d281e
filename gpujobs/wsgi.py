import os

from django.conf import settings
from django.core.checks import ERROR, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpujobs.settings")

# Whoever waits for an answer gets one within five seconds; a task may wait longer.
if settings.DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    settings.DATABASES["default"]["OPTIONS"]["timeout"] = 4
else:
    settings.DATABASES["default"]["ENGINE"] = "gpujobs.postgresql"

application = get_wsgi_application()

# manage.py does so by itself; a web server would serve with any settings.
refused = [check for check in run_checks() if check.level >= ERROR]
if refused:
    raise ImproperlyConfigured(
        "; ".join(f"{check.id}: {check.msg}" for check in refused)
    )
