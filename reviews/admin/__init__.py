"""Admin of reviews, the allow-list and API keys. Importing this package registers it."""

from reviews.admin import (
    agent_tasks,
    allow_list,
    api_keys,
    artifacts,
    attempts,
    code_hosts,
    jobs,
    scan_targets,
    skipped_paths,
    sources,
    subscriptions,
    team_rules,
    token_ledger,
    viewer_scopes,
)
