"""`manage.py check_compatibility`: may older machines run on after the next `migrate`?"""

from __future__ import annotations

from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from criticizer.db.compatibility import RiskyOperation, Verdict, judge
from criticizer.db.folded_migrations import refuse_partly_run


class Command(BaseCommand):
    help = "Say whether machines of the version before may run on while and after `migrate` is run."

    def handle(self, *args: object, **options: object) -> None:
        executor = MigrationExecutor(connection)
        refuse_partly_run(executor.loader)
        graph = executor.loader.graph
        plan = [step for step, _ in executor.migration_plan(graph.leaf_nodes())]
        if not plan:
            self.stdout.write("There is no migration to run: machines of the version before may run on.")
            return
        applied = [node for node in executor.loader.applied_migrations if node in graph.nodes]
        found = list(judge(plan, executor.loader.project_state(applied)))
        for finding in found:
            self.stdout.write(f"{finding.migration}: {finding.reason}. ({finding.verdict})")
        if problem := conclusion(found):
            raise CommandError(problem)
        self.stdout.write(f"{len(plan)} migrations only add: machines of the version before may run on.")


def conclusion(found: list[RiskyOperation]) -> str:
    """Return what to do with machines of the version before; "" when they may run on."""
    if any(finding.verdict is Verdict.BREAKS for finding in found):
        return "stop all machines of the version before, then migrate."
    if found:
        return "read the operations above, or stop all machines of the version before, then migrate."
    return ""
