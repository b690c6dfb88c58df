"""The admin site, and the application that makes it Django's default one."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.apps import AdminConfig


class CriticizerAdminSite(admin.AdminSite):
    site_header = site_title = "Criticizer"
    index_title = "Now"
    enable_nav_sidebar = False  # templates/admin/_navigation.html has the tasks

    def get_urls(self) -> list[Any]:
        # `/admin/r/<type>/<id>/` fails for keys that are not of the table's type; pages link by themselves.
        return [url for url in super().get_urls() if getattr(url, "name", "") != "view_on_site"]


class SiteConfig(AdminConfig):
    default_site = "criticizer.admin_site.site.CriticizerAdminSite"
