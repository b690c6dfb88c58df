"""WSGI entry point: `gunicorn criticizer.wsgi`."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "criticizer.settings")
application = get_wsgi_application()
