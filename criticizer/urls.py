"""Every door on one page."""

from django.contrib import admin
from django.urls import include, path

from criticizer import health

urlpatterns = [
    path("", include("reviews.urls")),
    path("api/", include("reviews.api.urls")),
    path("admin/", admin.site.urls),
    path("metrics", health.metrics, name="metrics"),
]
