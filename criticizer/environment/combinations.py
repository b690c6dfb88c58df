"""Rules for variables that must be set, or unset, together with others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def problems(v: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (variable, problem) for each rule that the values of all variables break."""
    return ((name, problem) for is_wrong, name, problem in _rules(v) if is_wrong)


def _rules(v: Mapping[str, Any]) -> tuple[tuple[object, str, str], ...]:
    """Return (is broken, variable, problem) for every rule."""
    model, backup = v["LLM_PROVIDER"], v["LLM_FALLBACK_PROVIDER"]
    uses_s3 = v["ARTIFACT_STORAGE"] == "s3"
    raw, redacted, letters = (v[f"ARTIFACT_S3_BUCKET_{kind}"] for kind in ("RAW", "REDACTED", "LETTERS"))
    shared = "is also the bucket of other files"
    unwatched = sorted({name for name, _ in v["GIT_WATCH"]} - set(v["GIT_REPOSITORIES"]))

    def unset(name: str, needed: object, fact: str, *instead: str) -> tuple[object, str, str]:
        is_missing = needed and not any(v[one] for one in (name, *instead))
        return is_missing, name, f"is not set while {fact}"

    def unset_with(name: str, other: str) -> tuple[object, str, str]:
        return unset(name, v[other], f"{other} is")

    def unset_for(name: str, variable: str, value: str, *instead: str) -> tuple[object, str, str]:
        return unset(name, v[variable] == value, f"{variable} is {value}", *instead)

    return (
        unset_with("SECRET_KEY", "DATABASE_URL"),
        unset_with("ARTIFACT_KEYS", "DATABASE_URL"),
        unset_for("ARTIFACT_S3_BUCKET_RAW", "ARTIFACT_STORAGE", "s3"),
        unset_for("ARTIFACT_S3_BUCKET_REDACTED", "ARTIFACT_STORAGE", "s3"),
        unset_for("ARTIFACT_S3_BUCKET_LETTERS", "ARTIFACT_STORAGE", "s3"),
        (uses_s3 and redacted == raw, "ARTIFACT_S3_BUCKET_REDACTED", shared),
        (uses_s3 and letters in {raw, redacted}, "ARTIFACT_S3_BUCKET_LETTERS", shared),
        (unwatched, "GIT_WATCH", f"{', '.join(unwatched)} is not in GIT_REPOSITORIES"),
        unset_with("EMBEDDINGS_MODEL", "EMBEDDINGS_BASE_URL"),
        (v["LLM_REQUIRED"] and model == "none", "LLM_REQUIRED", "is true while LLM_PROVIDER is none"),
        unset("LLM_MODEL", model not in ("none", "agent"), "LLM_PROVIDER is"),
        unset_for("LLM_BASE_URL", "LLM_PROVIDER", "openai"),
        unset_for("LLM_API_KEY", "LLM_PROVIDER", "anthropic", "LLM_API_KEY_NEXT", "LLM_BASE_URL"),
        (
            backup != "none" and model in ("none", "agent"),
            "LLM_FALLBACK_PROVIDER",
            f"is set while LLM_PROVIDER is {model}",
        ),
        unset("LLM_FALLBACK_MODEL", backup != "none", f"LLM_FALLBACK_PROVIDER is {backup}"),
        unset_for("LLM_FALLBACK_BASE_URL", "LLM_FALLBACK_PROVIDER", "openai"),
        unset_for("LLM_FALLBACK_API_KEY", "LLM_FALLBACK_PROVIDER", "anthropic", "LLM_FALLBACK_BASE_URL"),
        (
            "anthropic" in (model, backup) and not v["LLM_MAX_OUTPUT_TOKENS"],
            "LLM_MAX_OUTPUT_TOKENS",
            "is 0 while a model server is anthropic, which needs a limit",
        ),
        unset_with("IMAP_ARCHIVE_ADDRESS", "IMAP_ARCHIVE_URL"),
        unset_with("IMAP_ARCHIVE_URL", "IMAP_ARCHIVE_ADDRESS"),
        unset_for("SMTP_HOST", "MAIL_PROVIDER", "smtp"),
        unset_for("RESEND_API_KEY", "MAIL_PROVIDER", "resend"),
        unset_for("POSTMARK_SERVER_TOKEN", "MAIL_PROVIDER", "postmark"),
        unset_with("SWARM_USER", "SWARM_URL"),
        unset_with("SWARM_TICKET", "SWARM_URL"),
    )
