"""The environment variables that connect Gitea or Forgejo."""

from __future__ import annotations

from criticizer.environment import parsers
from criticizer.environment.parsers import HEADER, HTTP, TEXTS
from criticizer.environment.variable import Variable, secret_variable

# fmt: off
VARIABLES = (
    Variable("GITEA_URL", HTTP, "The site of Gitea or Forgejo: docs/gitea.md.",
             example="https://gitea.example.com"),
    secret_variable("GITEA_TOKEN", HEADER,
                    "The token of the account that reads, comments and sets statuses on Gitea."),
    secret_variable("GITEA_TOKEN_NEXT", HEADER, "Tried when GITEA_TOKEN is refused."),
    secret_variable("GITEA_WEBHOOK_SECRETS", TEXTS, "The secrets of Gitea's webhooks, newest first."),
    Variable("GITEA_REPOSITORIES", parsers.REPOSITORY_GLOBS,
             "Repositories whose pull requests are reviewed. Unset: all below //gitea/ in the allow-list.",
             example="acme/*"),
)
# fmt: on
