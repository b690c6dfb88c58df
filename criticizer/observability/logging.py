"""Structured JSON logs: one line an event, a stable event name, ids.

`log.info("stage_done", job=7, stage="llm", attempt=2)`. Every event passes the redactor
before it is rendered; JSON escapes newlines and control characters.
"""

from __future__ import annotations

import logging.config
from typing import Any

import structlog
from django.core.exceptions import SuspiciousOperation
from structlog.typing import EventDict, Processor, WrappedLogger


def _redact(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    # Imported at the first line, not at start: settings import this module.
    from criticizer.redaction import redact_event

    return dict(redact_event(logger, method, event))


MAX_REFUSED_CHARS = 200  # of the text about a refused request
_SEVERITIES = {"error": "high", "critical": "critical"}  # by level, of an error without a class


def add_failure_facts(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Complete class, code and severity of a line about a failure (guarantee G175).

    They follow from what the line has: a code, a class, or an exception; the severity of any other error
    follows from its level.
    """
    from criticizer.redaction.log_scrubbing import error_of
    from criticizer.resilience.classification import classify
    from criticizer.resilience.failures import Component, ErrorClass, kind_of, kind_with_code

    kind = None
    if isinstance(code := event.get("code"), str):
        kind = kind_with_code(code)
    elif (name := str(event.get("error_class", ""))) in ErrorClass.__members__:
        kind = kind_of(ErrorClass[name], Component.INTERNAL)
    elif (error := error_of(event.get("exc_info"))) is not None:
        kind = classify(error).kind
    if kind is not None:
        return {**kind.facts, **event}
    if event.get("level") in _SEVERITIES:
        event.setdefault("severity", _SEVERITIES[event["level"]])
    return event


def tone_down_refused_requests(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Turn Django's error about a request that it refuses with 400 into a warning (G580).

    Django would log it with a stack. Anybody can send such requests: a forged Host header, a thousand fields.
    The text repeats what was sent.
    """
    from criticizer.redaction.log_scrubbing import error_of

    error = error_of(event.get("exc_info"))
    if isinstance(error, SuspiciousOperation) and str(event.get("logger", "")).startswith("django.security."):
        del event["exc_info"]
        text = str(event["event"])
        event.update(event=text[:MAX_REFUSED_CHARS], level="warning", error=type(error).__name__)
    return event


_SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.stdlib.PositionalArgumentsFormatter(),
]


def django_logging(level: str) -> dict[str, Any]:
    """Return Django's LOGGING value: everything as JSON on standard error."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "json": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": _SHARED,
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    tone_down_refused_requests,
                    add_failure_facts,
                    _redact,
                    structlog.processors.JSONRenderer(),
                ],
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django-q": {"level": "WARNING"},
            "httpx": {"level": "WARNING"},
            "httpcore": {"level": "WARNING"},
            "waitress.queue": {"level": "ERROR"},  # a line for each request that waits for a thread
        },
    }


def configure(config: dict[str, Any]) -> None:
    """Install `config` (Django's LOGGING_CONFIG hook) and point structlog at it."""
    logging.config.dictConfig(config)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
