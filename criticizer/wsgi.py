"""WSGI entry point of other servers; `manage.py web` is ours."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "criticizer.settings")
application = get_wsgi_application()
