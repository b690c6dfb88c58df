"""URLs of the webhooks for mail services' reports."""

from django.urls import path

from notifications.suppressions import tracking

urlpatterns = [
    path("resend/", tracking.resend, name="mail-events-resend"),
    path("postmark/", tracking.postmark, name="mail-events-postmark"),
]
