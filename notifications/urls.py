"""Addresses of this room: the link in messages, and the console's pages about messages."""

from django.contrib import admin
from django.urls import path

from notifications.admin import views as console_views
from notifications.preferences import views

_staff = admin.site.admin_view

urlpatterns = [
    path("unsubscribe/<str:signed>/", views.unsubscribe, name="unsubscribe"),
    # Before the console's own addresses, which end with "there is no such page".
    path(
        "admin/deliveries/<int:delivery_id>/message/",
        _staff(console_views.delivery_message),
        name="delivery-message",
    ),
    path(
        "admin/deliveries/<int:delivery_id>/message/html/",
        _staff(console_views.delivery_message_html),
        name="delivery-message-html",
    ),
    path("admin/providers/", _staff(console_views.providers), name="providers"),
    path(
        "admin/providers/<slug:channel>/test/",
        _staff(console_views.provider_test),
        name="provider-test",
    ),
]
