import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpujobs.settings")

# Whoever waits for an answer gets one within five seconds; a task may wait longer.
if settings.DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    settings.DATABASES["default"]["OPTIONS"]["timeout"] = 4
else:
    settings.DATABASES["default"]["ENGINE"] = "gpujobs.postgresql"

application = get_wsgi_application()
