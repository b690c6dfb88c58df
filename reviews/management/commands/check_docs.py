"""`manage.py check_docs`: print what is untrue in documents of a local git repository.

`check_docs BASE HEAD` says what the change between two commits makes untrue, `check_docs --all HEAD` what
has become untrue since it was written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from criticizer import texts
from criticizer.resilience.failures import Failure
from reviews.drift.change import Report, compare
from reviews.drift.claims import Claim, Verdict
from reviews.drift.git_tree import GitTree, renames_between
from reviews.drift.history_gate import scan_commit
from reviews.sources.git_command import SHA, GitCommand
from reviews.sources.paths import printable


class Command(BaseCommand):
    help = "Verify the documents of a local git repository between two commits. Fails where one is untrue."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("commits", nargs="+", help="commits, branches or tags: before and after a change")
        parser.add_argument("--all", action="store_true", help="verify every claim of one commit instead")
        parser.add_argument("--repository", type=Path, default=Path(), help="its folder (default: this one)")

    def handle(self, *, commits: list[str], repository: Path, all: bool, **options: Any) -> None:  # noqa: A002
        if len(commits) != (1 if all else 2):
            raise CommandError("name two commits, before and after a change, or one with --all")
        try:
            git = GitCommand("check_docs", repository.resolve(), "git", timeout_seconds=60)
            named = [_commit(git, name) for name in commits]
            untrue = self._scanned(git, *named) if all else self._compared(git, *named)
        except Failure as failure:
            raise CommandError(str(failure)) from failure
        if untrue:
            says = "untrue" if all else "untrue after this change"
            raise CommandError(f"{untrue} claim{'s are' if untrue > 1 else ' is'} {says}")

    def _compared(self, git: GitCommand, before: str, after: str) -> int:
        trees = GitTree(git, before), GitTree(git, after)
        report = compare(*trees, renames_between(git, before, after))
        for drifted in report.drifted:
            self.stdout.write(_line(drifted.claim, drifted.says, drifted.instead))
        self._count(report)
        return len(report.drifted)

    def _scanned(self, git: GitCommand, sha: str) -> int:
        done = scan_commit(git, sha)
        refuted = [(claim, one) for claim, one in done.found.items() if one.verdict is Verdict.REFUTED]
        for claim, one in sorted(refuted, key=lambda each: (each[0].document, each[0].line, each[0].key)):
            self.stdout.write(_line(claim, one.says, one.instead))
        self._count(done.report)
        health = "unknown, no claim could be decided" if done.health is None else f"{done.health} %"
        self.stdout.write(f"health: {health}")
        if done.unverified:
            total = len(done.found)
            verified = total - done.unverified
            self.stdout.write(texts.SCAN_TIMED_OUT.of(verified=verified, total=total))
        return len(refuted)

    def _count(self, report: Report) -> None:
        counts = ", ".join(f"{report.counts[verdict]} {verdict}" for verdict in Verdict)
        self.stdout.write(f"{counts}; {report.documents} documents read, {report.unread} not read")
        if report.left_out:
            self.stdout.write(f"{report.left_out} statements left out beyond the limits")
        if report.cut:
            self.stdout.write(f"{report.cut} long sentences read in part")


def _commit(git: GitCommand, name: str) -> str:
    found = git.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    sha = found.stdout.decode("ascii", "replace").strip()
    if found.exit_code != 0 or not SHA.fullmatch(sha):
        raise CommandError(f"the repository has no commit {printable(name, 80)!r}")
    return sha


def _line(claim: Claim, says: str, instead: str) -> str:
    text = f"{claim.document}:{claim.line}: `{claim.text}` is not so"
    text += f": {says}" if says else ""
    text += f"; write `{instead}`" if instead else ""
    return printable(text, 500)
