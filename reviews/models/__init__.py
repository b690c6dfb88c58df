"""Models of reviews: jobs, results, scans, sources, code hosts, access, rules and others."""

from reviews.models.access import AllowListEntry, ApiKey, AuditSeal, FeedKey, ViewerScope
from reviews.models.agents import AgentSubmission, AgentTask
from reviews.models.configurations import RepositoryConfiguration
from reviews.models.finding_events import FindingEvent
from reviews.models.hosts import (
    HostChange,
    HostCheck,
    HostDelivery,
    HostInstallation,
    HostRefusal,
    HostVersion,
)
from reviews.models.jobs import Attempt, JobEvent, RecipientMode, RecipientOrigin, ReviewJob, StageRun
from reviews.models.linters import LinterResultRow
from reviews.models.results import (
    FILE_NAME,
    FINDING_FACETS,
    FINDING_WORDS,
    WORD_MARKS,
    Artifact,
    CoverageRow,
    FindingFate,
    FindingRow,
    ReviewUnit,
)
from reviews.models.rollup import Rollup
from reviews.models.rules import RuleUse, SkippedPath, TeamRule
from reviews.models.scans import Scan, ScanDocument, ScanTarget
from reviews.models.sources import SourceEvent, SourcePosition
from reviews.models.subscriptions import Subscription
from reviews.models.tokens import LedgerEntry, TokenUse
