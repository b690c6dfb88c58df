"""`manage.py cluster QUEUE`: one django-q2 worker cluster in a process group of its own."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from types import FrameType

import structlog
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connections
from django.utils.module_loading import import_string

from criticizer import caretaker
from criticizer.checks import TAG
from criticizer.models import WorkerCluster

log = structlog.get_logger(__name__)
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask Linux to end this process when its parent dies, so that nothing is left unguarded.

    Elsewhere the caretaker's look at the parent's pid does the same half a second later.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Command(BaseCommand):
    help = "Run the worker cluster of one queue until SIGTERM."
    requires_system_checks = [TAG]

    def add_arguments(self, parser: CommandParser) -> None:
        queues = sorted({queue for _, queue in settings.STAGES.values()})
        parser.add_argument("queue", choices=queues)

    def handle(self, *, queue: str, **options: object) -> None:
        if os.environ.get("Q_CLUSTER_NAME") != queue:
            # django-q2 reads the name once, when it is imported.
            os.environ["Q_CLUSTER_NAME"] = queue
            os.execv(sys.executable, [sys.executable, *sys.argv])
        if os.getpgrp() != os.getpid():
            os.setpgrp()
        os.environ["CRITICIZER_CLUSTER_GROUP"] = str(os.getpgrp())
        # A broken connection shows at the claim, which is repeated; asking first costs a round trip a task.
        connections["default"].settings_dict["CONN_HEALTH_CHECKS"] = False
        os.register_at_fork(after_in_child=die_with_parent)

        from django_q.cluster import Cluster

        # Loaded before the fork, so that all workers share the memory.
        for path in (*settings.TASKS.values(), *(path for path, _ in settings.STAGES.values())):
            import_string(path)

        class DrainingCluster(Cluster):  # type: ignore[misc]
            def sig_handler(self, signum: int, frame: FrameType | None) -> None:
                mark_draining()
                super().sig_handler(signum, frame)

        connections.close_all()
        cluster = DrainingCluster()
        cluster.start()
        if cluster.sentinel is None:
            return
        while cluster.sentinel.is_alive():
            cluster.sentinel.join(1)
        if not cluster.has_stopped:
            raise CommandError(f"the cluster {queue} ended unexpectedly")


def mark_draining() -> None:
    """Tell the driver of this cluster to take nothing new. A lost database is no reason to wait."""
    try:
        WorkerCluster.objects.filter(pk=caretaker.CLUSTER_ID).update(draining=True)
    except DatabaseError:
        log.warning("drain_not_marked")
    finally:
        connections.close_all()
