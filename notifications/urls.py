"""URLs: unsubscribe page, reports of mail services, the admin's pages about messages."""

from django.contrib import admin
from django.urls import path

from notifications.admin import views as admin_views
from notifications.preferences import views
from notifications.suppressions import webhooks

_staff = admin.site.admin_view

urlpatterns = [
    path("unsubscribe/", views.unsubscribe, name="unsubscribe"),
    path("unsubscribe/<str:signed>/", views.unsubscribe, name="unsubscribe-in-path"),  # of earlier mails
    path("webhooks/resend/", webhooks.resend, name="mail-events-resend"),
    path("webhooks/postmark/", webhooks.postmark, name="mail-events-postmark"),
    # Before the admin's own URLs, which end with a catch-all.
    path(
        "admin/deliveries/<int:delivery_id>/message/",
        _staff(admin_views.delivery_message),
        name="delivery-message",
    ),
    path(
        "admin/deliveries/<int:delivery_id>/message/html/",
        _staff(admin_views.delivery_message_html),
        name="delivery-message-html",
    ),
    path("admin/providers/", _staff(admin_views.providers), name="providers"),
    path(
        "admin/providers/<slug:channel>/test/",
        _staff(admin_views.provider_test),
        name="provider-test",
    ),
]
