"""What gunicorn calls (`--config python:criticizer.workers.gunicorn_conf`)."""

from __future__ import annotations

from criticizer.workers.parent_death import die_with_parent


def post_fork(server: object, worker: object) -> None:
    """Let a web worker end with its master.

    Left alone, it stops accepting after a second and keeps the port until its last connection is
    closed: new clients hang meanwhile, and the next master cannot bind.
    """
    die_with_parent()
