"""`manage.py check_docs --repository PATH BASE HEAD`: print what a change makes untrue in documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from criticizer.resilience.failures import Failure
from reviews.drift.change import Drifted, compare
from reviews.drift.claims import Verdict
from reviews.drift.git_tree import GitTree, renames_between
from reviews.sources.git_command import SHA, GitCommand
from reviews.sources.paths import printable


class Command(BaseCommand):
    help = "Verify the documents of a local git repository between two commits. Fails where one is untrue."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("base", help="the commit, branch or tag before the change")
        parser.add_argument("head", help="the one after it")
        parser.add_argument("--repository", type=Path, default=Path(), help="its folder (default: this one)")

    def handle(self, *, base: str, head: str, repository: Path, **options: Any) -> None:
        try:
            git = GitCommand("check_docs", repository.resolve(), "git", timeout_seconds=60)
            before, after = (_commit(git, name) for name in (base, head))
            trees = GitTree(git, before), GitTree(git, after)
            report = compare(*trees, renames_between(git, before, after))
        except Failure as failure:
            raise CommandError(str(failure)) from failure
        for drifted in report.drifted:
            self.stdout.write(_line(drifted))
        counts = ", ".join(f"{report.counts[verdict]} {verdict}" for verdict in Verdict)
        self.stdout.write(f"{counts}; {report.documents} documents read, {report.unread} not read")
        if report.drifted:
            count = len(report.drifted)
            raise CommandError(f"{count} claim{'s are' if count > 1 else ' is'} untrue after this change")


def _commit(git: GitCommand, name: str) -> str:
    found = git.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    sha = found.stdout.decode("ascii", "replace").strip()
    if found.exit_code != 0 or not SHA.fullmatch(sha):
        raise CommandError(f"the repository has no commit {printable(name, 80)!r}")
    return sha


def _line(drifted: Drifted) -> str:
    claim = drifted.claim
    text = f"{claim.document}:{claim.line}: `{claim.text}` is not so"
    text += f": {drifted.says}" if drifted.says else ""
    text += f"; write `{drifted.instead}`" if drifted.instead else ""
    return printable(text, 500)
