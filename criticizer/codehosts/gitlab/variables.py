"""The environment variables that connect GitLab."""

from __future__ import annotations

from criticizer.environment import parsers
from criticizer.environment.parsers import HEADER, HTTP, Invalid, checked_list
from criticizer.environment.variable import Variable, secret_variable
from criticizer.security.standard_webhooks import KEY_PREFIX, key_of


def _secret(text: str) -> str:
    if text.startswith(KEY_PREFIX) and not key_of(text):
        raise Invalid("has a signing token that is not whsec_ followed by base64")
    return text


SECRETS = checked_list(
    _secret, "the webhook's secret token, or its signing token: whsec_ followed by base64, as GitLab shows it"
)

# fmt: off
VARIABLES = (
    Variable("GITLAB_URL", HTTP, "The site of GitLab: docs/gitlab.md.", "https://gitlab.com"),
    secret_variable("GITLAB_TOKEN", HEADER,
                    "The token of the account, group or project that reads and comments on GitLab."),
    secret_variable("GITLAB_TOKEN_NEXT", HEADER, "Tried when GITLAB_TOKEN is refused."),
    secret_variable("GITLAB_WEBHOOK_SECRETS", SECRETS,
                    "The secrets of GitLab's webhooks, newest first: signing tokens (whsec_...) and "
                    "secret tokens."),
    Variable("GITLAB_REPOSITORIES", parsers.PROJECT_GLOBS,
             "Projects whose merge requests are reviewed. Unset: all below //gitlab/ in the allow-list.",
             example="acme/*,acme/lib/website"),
)
# fmt: on
