"""URLs of the API, below `/api/`."""

from django.urls import path, re_path

from criticizer.codehosts.registry import HOSTS
from reviews.api import agents, dead_letters, views
from reviews.api.configuration import ConfigurationCheck
from reviews.api.findings import FindingList, FindingVerdict
from reviews.api.linter_results import ReviewEvidence
from reviews.api.openapi import DocsView, SchemaView
from reviews.api.scans import ScanDetail, ScanDocuments, ScanList
from reviews.api.webhooks import HostWebhook
from reviews.finding_exports import FORMS

urlpatterns = [
    path("v1/reviews/", views.ReviewList.as_view(), name="api-reviews"),
    path("v1/reviews/<int:job_id>/", views.ReviewDetail.as_view(), name="api-review"),
    path("v1/reviews/<int:job_id>/findings/", views.ReviewFindings.as_view(), name="api-review-findings"),
    re_path(
        rf"^v1/reviews/(?P<job_id>[0-9]{{1,18}})/findings\.(?P<form>{'|'.join(FORMS)})$",
        views.ReviewFindingsFile.as_view(),
        name="api-review-findings-file",
    ),
    path("v1/reviews/<int:job_id>/evidence/", ReviewEvidence.as_view(), name="api-review-evidence"),
    path("v1/reviews/<int:job_id>/coverage/", views.ReviewCoverage.as_view(), name="api-review-coverage"),
    path("v1/reviews/<int:job_id>/cancel/", views.ReviewCancel.as_view(), name="api-review-cancel"),
    path("v1/findings/", FindingList.as_view(), name="api-findings"),
    path("v1/findings/<int:finding_id>/verdict/", FindingVerdict.as_view(), name="api-verdict"),
    path("v1/triggers/perforce/", views.PerforceTrigger.as_view(), name="api-perforce"),
    re_path(
        rf"^v1/hosts/(?P<host>{'|'.join(HOSTS)})/webhook/$", HostWebhook.as_view(), name="api-host-webhook"
    ),
    path("v1/config/validate/", ConfigurationCheck.as_view(), name="api-config-validate"),
    path("v1/agent-tasks/", agents.AgentTaskList.as_view(), name="api-agent-tasks"),
    path("v1/agent-tasks/claim/", agents.AgentTaskClaimNext.as_view(), name="api-agent-claim-next"),
    path("v1/agent-tasks/<uuid:task_id>/claim/", agents.AgentTaskClaim.as_view(), name="api-agent-claim"),
    path(
        "v1/agent-tasks/<uuid:task_id>/heartbeat/",
        agents.AgentTaskHeartbeat.as_view(),
        name="api-agent-heartbeat",
    ),
    path(
        "v1/agent-tasks/<uuid:task_id>/release/", agents.AgentTaskRelease.as_view(), name="api-agent-release"
    ),
    path("v1/agent-tasks/<uuid:task_id>/result/", agents.AgentTaskResult.as_view(), name="api-agent-result"),
    path("v1/scans/", ScanList.as_view(), name="api-scans"),
    path("v1/scans/<int:scan_id>/", ScanDetail.as_view(), name="api-scan"),
    path("v1/scans/<int:scan_id>/documents/", ScanDocuments.as_view(), name="api-scan-documents"),
    path("v1/dead-letters/", dead_letters.DeadLetterList.as_view(), name="api-dead-letters"),
    path("v1/dead-letters/<int:letter_id>/", dead_letters.DeadLetterDetail.as_view(), name="api-dead-letter"),
    path("schema/", SchemaView.as_view(), name="api-schema"),
    path("docs/", DocsView.as_view(), name="api-docs"),
    re_path(r"", views.Unknown.as_view(), name="api-unknown"),
]
