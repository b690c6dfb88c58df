"""Restore drill: lose a machine with database and files under load, restore it on another.

The other one is empty. `deploy/backup.sh` copies the database once and then makes a point every few seconds;
`deploy/restore.sh` restores the last point, as docs/operations/backup.md says. Clients repeat what they were
answered with their idempotency keys. Then the books are compared as in `make drill`: whatever was committed
before the point is there, whatever came after it is done once more, and no receiver that deduplicates has
anything twice.

The last line on standard output is a JSON object. `rpo_seconds` is the age of the point when the machine was
lost, `rto_seconds` the time from the beginning of the restore until the web server was ready, and
`rto_review_seconds` until a review that was posted then had ended. The status is 1 unless the books balance.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from cryptography.fernet import Fernet

from benchmarks import drill_ledger, drill_peers
from benchmarks.drill_course import COUNTED, explain, kept_unless_good, options_of
from benchmarks.drill_ledger import Verdict, take_out_repeated
from benchmarks.drill_load import Stream, make_requests
from benchmarks.drill_peers import Peers
from benchmarks.drill_stack import Installation, api_keys, environment, make_commits
from benchmarks.figures import say
from benchmarks.ground import until
from criticizer.db.embedded import DATABASE, OWNER, EmbeddedServer
from reviews.demo import free_port

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
JOBS_A_SECOND = 2.0
EVERY_SECONDS = 10.0  # a point
SETTLE_SECONDS = 180.0


@dataclass
class RestoreDrill:
    jobs: int
    seed: int
    scale: float
    files: Path

    def run(self) -> tuple[dict[str, object], Verdict]:
        """Run the drill; return its summary and what the books say."""
        repository, self.backup = self.files / "repository", self.files / "backup"
        commits = make_commits(repository, self.jobs + 1)
        (self.backup / "wal").mkdir(parents=True)
        with drill_peers.running(self.files) as peers:
            keys = {"SECRET_KEY": "k" * 64, "ARTIFACT_KEYS": Fernet.generate_key().decode()}
            options = {**options_of(peers, self.scale), **keys}
            first, second = (
                Installation(
                    self.files / name, free_port(), environment(self.files / name, repository, options)
                )
                for name in ("first", "second")
            )
            requests = make_requests(commits, peers, self.seed, smtp_share=1.0)
            try:
                stream, points = self._work_and_lose(first, requests[:-1])
                return self._recover(first, second, peers, stream, requests[-1], points)
            finally:
                first.stop()
                second.stop()
                second.server.stop("immediate")

    # -- the machine that is lost -------------------------------------------------------------

    def _work_and_lose(self, first: Installation, requests: list[Any]) -> tuple[Stream, list[float]]:
        wal = self.backup / "wal"
        first.files.mkdir()
        archive = shutil.copy(DEPLOY / "backup.sh", self.files)  # where the server's account may read
        command = f"BACKUP_DIR={self.backup} {archive} archive %p %f"
        clients = self.files / "pg_hba.conf"
        clients.write_text("local all,replication all trust\n")
        server = EmbeddedServer(
            first.files, archive_mode="on", archive_command=command, hba_file=str(clients)
        )
        server.start()
        shutil.chown(wal, server.cluster_dir.stat().st_uid)
        first.start()
        stream = Stream(first.addresses, api_keys(first.manage)[0], requests, self.jobs / JOBS_A_SECOND)
        begun = time.monotonic()
        stream.start()
        self._script("backup.sh", first, "base")
        say(f"drill: the base took {time.monotonic() - begun:.1f} s")
        points, took = [], []
        while not stream.is_done():
            self.before = self._keys(first)
            points.append(time.time())
            self._script("backup.sh", first, "point")
            took.append(time.time() - points[-1])
            end = points[-1] + EVERY_SECONDS
            until(
                lambda end=end: time.time() > end or stream.is_done(), 2 * EVERY_SECONDS, "time stands still"
            )
        say(f"drill: {len(points)} points, each in at most {max(took):.1f} s; now the machine is lost")
        self.lost_at = time.time()
        server.kill()
        first.kill()
        return stream, points

    def _script(self, name: str, installation: Installation, *arguments: str, **options: str) -> None:
        tools = Path(EmbeddedServer._binary("psql")).parent
        subprocess.run(
            [str(DEPLOY / name), *arguments],
            env={
                "PATH": f"{tools}:{os.defpath}",
                "BACKUP_DIR": str(self.backup),
                "CRITICIZER_DATA_DIR": str(installation.files),
                "PGHOST": str(installation.server.socket_dir),
                "PGUSER": OWNER,
                "PGDATABASE": DATABASE,
                **options,
            },
            check=True, timeout=300, stdout=sys.stderr,
        )  # fmt: skip

    # -- the empty machine --------------------------------------------------------------------

    def _recover(
        self,
        first: Installation,
        second: Installation,
        peers: Peers,
        stream: Stream,
        last: Any,
        points: list[float],
    ) -> tuple[dict[str, object], Verdict]:
        begun = time.monotonic()
        second.files.mkdir()
        self._script("restore.sh", second, PGDATA=str(second.server.cluster_dir))
        owner = first.server.cluster_dir.stat()
        for path in (second.server.cluster_dir, *second.server.cluster_dir.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid)
        second.server.start()
        with second.connect() as connection:
            until(
                lambda: not _one(connection, "SELECT pg_is_in_recovery()"), 120, "PostgreSQL is not restored"
            )
        database = time.monotonic() - begun
        restored = self._keys(second)
        second.start()
        ready = time.monotonic() - begun
        afterwards = Stream(second.addresses, stream.key, [last], 0.1)
        afterwards.start()
        with second.connect() as connection:
            ended = "SELECT count(*) FROM jobs WHERE finished_at IS NOT NULL AND idempotency_key = %s"
            until(
                lambda: _one(connection, ended, last.key) == 1, SETTLE_SECONDS, "the next review does not end"
            )
        reviewed = time.monotonic() - begun
        lost = {entry.key for entry in stream.posted} - restored
        # A client that cannot find its review posts it again, with the same key.
        stream.posted[:] = [entry for entry in stream.posted if entry.key not in lost]
        stream.addresses = second.addresses
        stream.__post_init__()
        stream.post_again(lost)
        with second.connect() as connection:
            open_jobs = "SELECT count(*) FROM jobs WHERE finished_at IS NULL"
            until(lambda: _one(connection, open_jobs) == 0, SETTLE_SECONDS, "reviews are left")
            posted = [*stream.posted, *afterwards.posted]
            facts = drill_ledger.read(connection)
        verdict = drill_ledger.reconcile(posted, facts, peers.receipts())
        repeated = take_out_repeated(verdict, facts, [self.lost_at], lost)
        verdict.lost += [
            f"{key} was committed before the point and is not there" for key in sorted(self.before - restored)
        ]
        for command in ("verify_audit", "verify_artifacts"):
            try:
                say(f"drill: {command}: {second.manage(command)}")
            except subprocess.CalledProcessError:
                verdict.wrong_state.append(f"{command} found something")
        explain(verdict)
        return {
            "jobs": self.jobs,
            "seed": self.seed,
            **{name: len(getattr(verdict, name)) for name in COUNTED},
            "points": len(points),
            "requests_after_the_point": len(lost),
            "repeated_mails": repeated["mail"],  # a mail server cannot deduplicate
            "repeated_webhooks": repeated["webhook"],  # with the same id and another time of review
            "rpo_seconds": round(self.lost_at - points[-1], 1),
            "rto_database_seconds": round(database, 1),
            "rto_seconds": round(ready, 1),
            "rto_review_seconds": round(reviewed, 1),
        }, verdict

    def _keys(self, installation: Installation) -> set[str]:
        with installation.connect() as connection:
            return {row[0] for row in connection.execute("SELECT idempotency_key FROM jobs").fetchall()}


def _one(connection: psycopg.Connection[Any], query: str, *values: object) -> Any:
    row = connection.execute(query.encode(), values).fetchone()
    return row[0] if row else None


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.restore_drill", description="The restore drill."
    )
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=0.1, help="RETRY_TIME_SCALE of the run")
    parser.add_argument("--keep", action="store_true", help="keep the directory of a good run as well")
    given = parser.parse_args()

    def run(files: Path) -> tuple[dict[str, object], Verdict]:
        return RestoreDrill(given.jobs, given.seed, given.scale, files).run()

    return kept_unless_good(
        run, f"make restore-drill JOBS={given.jobs} SEED={given.seed}", is_kept=given.keep
    )


if __name__ == "__main__":
    sys.exit(main())
