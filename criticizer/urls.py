"""Every door on one page."""

from django.contrib import admin
from django.urls import include, path

from criticizer import health, reauth

urlpatterns = [
    path("", include("reviews.urls")),
    path("reauth/", reauth.confirm_password, name="reauth"),
    path("api/", include("reviews.api.urls")),
    path("admin/", admin.site.urls),
    path("metrics", health.metrics, name="metrics"),
]

# What fails before a view is found: the API answers in its own form there too.
handler400 = "reviews.api.errors.bad_request"
handler500 = "reviews.api.errors.server_error"
