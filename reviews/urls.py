"""URLs of the pages. Mails and webhooks link to `reviews:list` and `reviews:detail`."""

from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import include, path, re_path
from django.views.decorators.http import require_POST

from reviews.admin import code_host_setup, invite, message_preview
from reviews.finding_exports import FORMS
from reviews.web import (
    actions,
    comparison,
    configurations,
    feeds,
    findings,
    fold_proposals,
    quality,
    scans,
    views,
)
from reviews.web import subscriptions as subscription_views
from reviews.web.login import Login
from reviews.web.welcome import Welcome

_pages = [
    path("", views.review_list, name="list"),
    path("findings/", views.finding_list, name="findings"),
    path("quality/", quality.quality, name="quality"),
    path("quality/fold/", fold_proposals.fold, name="quality-fold"),
    path("reviews/live/", views.review_list_live, name="list-live"),
    path("reviews/<int:job_id>/", views.review_detail, name="detail"),
    path("reviews/<int:job_id>/live/", views.review_detail_live, name="detail-live"),
    re_path(
        rf"^reviews/(?P<job_id>[0-9]{{1,18}})/findings\.(?P<form>{'|'.join(FORMS)})$",
        views.findings_file,
        name="findings-file",
    ),
    path("reviews/<int:job_id>/files/<int:number>/", views.review_file, name="file"),
    path("reviews/<int:job_id>/compare/", comparison.compare, name="compare"),
    path("reviews/<int:job_id>/findings/<int:finding_id>/", findings.finding, name="finding"),
    path("reviews/<int:job_id>/findings/<int:finding_id>/patch/", findings.patch, name="patch"),
    path("reviews/<int:job_id>/findings/<int:finding_id>/verdict/", findings.verdict, name="verdict"),
    path("reviews/<int:job_id>/findings/<int:finding_id>/comment/", findings.comment, name="comment"),
    path("verdict/", findings.verdict_link, name="verdict-link"),
    path("verdict/<str:signed>/", findings.verdict_link, name="verdict-link-in-path"),  # of earlier mails
    path("reviews/<int:job_id>/again/", actions.review_again, name="again"),
    path("reviews/<int:job_id>/cancel/", actions.cancel, name="cancel"),
    re_path(rf"^feeds/(?P<name>{'|'.join(feeds.LISTS)})\.atom$", feeds.feed, name="feed"),
    path("views/<str:name>/", views.saved_view, name="saved-view"),
    path("configurations/<int:pk>/", configurations.configuration, name="configuration"),
    path("scans/", scans.scan_targets, name="scans"),
    path("scans/<int:pk>/", scans.scan_target, name="scan-target"),
    path("scans/<int:pk>/live/", scans.scan_target_live, name="scan-target-live"),
    path("scans/<int:pk>/now/", scans.scan_now, name="scan-now"),
    path("subscriptions/", subscription_views.subscriptions, name="subscriptions"),
]

urlpatterns = [
    path("", include((_pages, "reviews"))),
    # Before admin.site.urls, whose catch-all answers every other path.
    path("admin/failure-codes/", admin.site.admin_view(views.failure_codes), name="failure-codes"),
    path(
        "admin/reviews/<int:job_id>/message/",
        admin.site.admin_view(message_preview.job_message),
        name="job-message",
    ),
    path(
        "admin/reviews/<int:job_id>/message/html/",
        admin.site.admin_view(message_preview.job_message_html),
        name="job-message-html",
    ),
    path("admin/dashboard/", admin.site.admin_view(views.dashboard_live), name="dashboard-live"),
    path("admin/repositories/", admin.site.admin_view(code_host_setup.repositories), name="repositories"),
    path(
        "admin/repositories/<slug:name>/test/",
        admin.site.admin_view(code_host_setup.check_connection),
        name="repository-test",
    ),
    path("admin/invite/", admin.site.admin_view(invite.invite), name="invite"),
    path(
        "admin/invite/<int:pk>/",
        require_POST(admin.site.admin_view(invite.invite_again)),
        name="invite-again",
    ),
    path("welcome/", Welcome.as_view(), name="welcome"),
    path("login/", Login.as_view(redirect_authenticated_user=True), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
]
