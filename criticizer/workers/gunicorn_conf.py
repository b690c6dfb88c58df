"""Gunicorn hooks (`--config python:criticizer.workers.gunicorn_conf`)."""

from __future__ import annotations

from criticizer.workers.parent_death import die_with_parent


def post_fork(server: object, worker: object) -> None:
    """Let a web worker end with its master.

    Without its master it stops accepting after a second but keeps the port until its last connection
    is closed: new clients hang, and the next master cannot bind.
    """
    die_with_parent()
