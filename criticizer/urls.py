"""Root URL configuration."""

from django.contrib import admin
from django.urls import include, path
from django.views.decorators.http import require_POST

from criticizer.admin_site import saved_views
from criticizer.observability import health
from criticizer.security import reauthentication

urlpatterns = [
    path("", include("reviews.urls")),
    path("", include("notifications.urls")),
    path("reauth/", reauthentication.confirm_password, name="reauth"),
    path("password/", reauthentication.ChangePassword.as_view(), name="change-password"),
    path("api/", include("reviews.api.urls")),
    path("admin/saved-views/", require_POST(admin.site.admin_view(saved_views.change)), name="saved-views"),
    path("admin/", admin.site.urls),
    path("metrics", health.metrics, name="metrics"),
]

# Errors before a view is found; the API answers these in its own form as well.
handler400 = "reviews.api.errors.bad_request"
handler404 = "criticizer.db.availability.not_found"
handler500 = "reviews.api.errors.server_error"
