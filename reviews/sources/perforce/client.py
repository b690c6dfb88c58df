"""The `p4` command line: its environment, its two output forms, its failures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import structlog

from criticizer.environment.secret import tickets_in
from criticizer.redaction import register_own_secrets
from criticizer.resilience.failures import ErrorClass, Failure, PermanentFailure, RetryableFailure
from criticizer.resilience.rotating_secrets import RotatingSecrets
from criticizer.workers.subprocesses import SEARCH_PATH, CommandResult, resolve_executable, run
from reviews.sources.failures import misconfigured, permanent, retryable, too_large, unavailable
from reviews.sources.perforce import records
from reviews.sources.perforce.errors import Meaning, Outcome, Verdict, verdict_of, verdict_of_stderr

log = structlog.get_logger()
T = TypeVar("T")

OLDEST_CLIENT = (2017, 1)  # older ones are not known to print JSON records
_TRANSPORT = r"(?:(?:tcp|tcp4|tcp6|tcp46|tcp64|ssl|ssl4|ssl6|ssl46|ssl64):)?"
_PORT = re.compile(_TRANSPORT + r"(?:(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):)?([0-9]{1,5})", re.ASCII)
_USER = re.compile(r"[^\s@#*%/\"'-][^\s@#*%/\"']{0,99}")
_VERSION = re.compile(r"^Rev\. P4/[^/]+/(\d{4})\.(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PerforceConfig:
    """One Perforce server and the account that reads it.

    `home` is a private directory for p4's own files, made when missing (0700). Tickets come from
    `tickets_files`; no password is ever passed. With `replica`, `port` may lag behind the server
    that runs the triggers, so that an unknown changelist is retried. `allow_rsh` admits the `rsh:`
    transport, which runs a command: for tests with a private server only.
    """

    executable: str | Path
    port: str
    user: str
    home: Path
    tickets_files: Sequence[Path] = ()  # the next one is used when the ticket in the first is refused
    trust_file: Path | None = None
    replica: bool = False
    allow_rsh: bool = False
    info_timeout_seconds: float = 10
    describe_timeout_seconds: float = 60
    print_timeout_seconds: float = 60
    max_listing_bytes: int = 64_000_000


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Answer of `info`, requested once per process."""

    unicode: bool
    case_sensitive: bool
    version: str
    server_id: str


@dataclass(frozen=True, slots=True)
class Printed:
    """One side of a file. `data` is None when there is a `verdict` instead."""

    data: bytes | None
    too_large: bool = False
    verdict: Verdict | None = None


def validate_port(value: str, *, allow_rsh: bool = False) -> str:
    """Return a P4PORT that names a network address.

    Raises ValueError for anything else, above all for `rsh:`, which runs a command.
    """
    if value.startswith("rsh:") and allow_rsh:
        return value
    found = _PORT.fullmatch(value)
    if found is None or not 0 < int(found[1]) < 65536:
        raise ValueError(
            "P4PORT must be host:port, tcp:host:port or ssl:host:port: set it to such an address"
        )
    return value


class P4Client:
    """Starts `p4` commands for one configuration and classifies how they end."""

    def __init__(self, config: PerforceConfig) -> None:
        """Raise PermanentFailure CONFIG_INVALID when the configuration cannot work."""
        try:
            validate_port(config.port, allow_rsh=config.allow_rsh)
        except ValueError as error:
            raise misconfigured(str(error)) from error
        if not _USER.fullmatch(config.user):
            raise misconfigured("P4USER is not a user name: set it to the service account")
        self.config = config
        self._executable = resolve_executable(config.executable)
        self._facts: ServerFacts | None = None
        self._tickets = RotatingSecrets[Path | None]("perforce_ticket_refused", config.tickets_files, None)

    def facts(self) -> ServerFacts:
        """Return the server's properties; the first call runs `p4 -V` and `p4 info`."""
        if self._facts is None:
            self._check_version()
            self._facts = self._ask_facts()
        return self._facts

    def check_health(self) -> None:
        """Request the server's address; raise when it does not answer."""
        answer = self.tagged("info", "-s", timeout_seconds=self.config.info_timeout_seconds, unicode=False)
        if not answer.results:
            raise unusable_answer("info", answer)

    def tagged(
        self,
        subcommand: str,
        *arguments: str,
        timeout_seconds: float | None = None,
        batch: Iterable[str] = (),
        unicode: bool | None = None,
    ) -> records.Answer:
        """Run a command for its records. `batch` holds file arguments that go through stdin.

        Messages of severity 2 and below are the caller's to read; worse ones raise.
        """
        with_charset = self.facts().unicode if unicode is None else unicode
        files = "".join(f"{argument}\n" for argument in batch).encode("utf-8", "surrogateescape")
        options = ["-zprog=criticizer", "-ztag", "-Mj", *(["-x", "-"] if files else [])]

        def judged(result: CommandResult) -> records.Answer:
            if result.truncated:
                raise too_large(
                    "the server's listing is larger than this installation reads",
                    subcommand=subcommand,
                    limit_bytes=self.config.max_listing_bytes,
                )
            answer = records.parse(result.stdout)
            self._raise_for(subcommand, result, answer)
            return answer

        return self._run(
            [*options, subcommand, *arguments],
            judged,
            subcommand=subcommand,
            timeout_seconds=timeout_seconds or self.config.describe_timeout_seconds,
            max_stdout_bytes=self.config.max_listing_bytes,
            stdin=files,
            with_charset=with_charset,
        )

    def print_file(
        self, path: str, revision: str, *, max_bytes: int, timeout_seconds: float | None = None
    ) -> Printed:
        """Return the bytes of one file revision, exactly as `p4 print -q` gives them.

        `path` is a depot path that has passed the allow-list, `revision` is `#n` or `@=n`.
        Raises for errors of the server; errors of the file are in the result.
        """
        return self._run(
            ["-zprog=criticizer", "print", "-q", f"{path}{revision}"],
            self._printed,
            subcommand="print",
            timeout_seconds=timeout_seconds or self.config.print_timeout_seconds,
            max_stdout_bytes=max_bytes,
            with_charset=self.facts().unicode,
        )

    def _printed(self, result: CommandResult) -> Printed:
        if result.truncated:
            return Printed(None, too_large=True)
        verdict = verdict_of_stderr(result.stderr)
        if verdict is not None and verdict.outcome in (Outcome.TRANSIENT, Outcome.PAUSE):
            raise self._failure(verdict, result.stderr, subcommand="print")
        if verdict is not None:
            return Printed(None, verdict=verdict)
        if result.exit_code < 0:
            raise _killed("print", result)
        if result.exit_code != 0:
            # Parts of a file must not pass for the whole of it.
            detail = "the server could not print it"
            return Printed(None, verdict=Verdict(Outcome.PERMANENT, ErrorClass.SCHEMA_INVALID, detail))
        return Printed(result.stdout)

    def _run(
        self,
        arguments: list[str],
        judged: Callable[[CommandResult], T],
        *,
        subcommand: str,
        timeout_seconds: float,
        max_stdout_bytes: int,
        with_charset: bool,
        stdin: bytes = b"",
    ) -> T:
        """Return what `judged` makes of a command's result, by the first ticket that is accepted."""

        def ask(tickets: Path | None) -> T:
            result = run(
                [str(self._executable), *arguments],
                subcommand=subcommand,
                environment=self._environment(tickets, with_charset=with_charset),
                timeout_seconds=timeout_seconds,
                max_stdout_bytes=max_stdout_bytes,
                stdin=stdin,
                cwd=self.config.home,
            )
            if result.timed_out:
                raise self._timed_out(subcommand, timeout_seconds)
            return judged(result)

        return self._tickets.call(ask)

    def _environment(self, tickets: Path | None, *, with_charset: bool) -> dict[str, str]:
        home = self.config.home
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        environment = {
            "PATH": SEARCH_PATH,
            "LANG": "C.UTF-8",
            "HOME": str(home),
            "PWD": str(home),  # p4 looks for P4CONFIG files from here, not from the real directory
            "P4PORT": self.config.port,
            "P4USER": self.config.user,
            "P4CLIENT": "criticizer-no-client",
            "P4CONFIG": "",
            "P4ENVIRO": "/dev/null",
        }
        if tickets is not None:
            register_own_secrets(tickets_in(tickets))  # known before anything can quote one
            environment["P4TICKETS"] = str(tickets)
        if self.config.trust_file is not None:
            environment["P4TRUST"] = str(self.config.trust_file)
        if with_charset:
            environment["P4CHARSET"] = "utf8"
        return environment

    def _check_version(self) -> None:
        found = self._run(
            ["-V"],
            lambda result: _VERSION.search(result.text),
            subcommand="version",
            timeout_seconds=self.config.info_timeout_seconds,
            max_stdout_bytes=100_000,
            with_charset=False,
        )
        if found is None:
            raise misconfigured("P4_EXECUTABLE does not tell its version: set it to the p4 command line")
        if (int(found[1]), int(found[2])) < OLDEST_CLIENT:
            raise misconfigured(
                f"p4 {found[1]}.{found[2]} is too old: install {OLDEST_CLIENT[0]}.{OLDEST_CLIENT[1]} or newer"
            )

    def _ask_facts(self) -> ServerFacts:
        seconds = self.config.info_timeout_seconds
        try:
            answer = self.tagged("info", timeout_seconds=seconds, unicode=False)
        except Failure as failure:
            if "Unicode server" not in str(failure.context.get("server_message", "")):
                raise
            answer = self.tagged("info", timeout_seconds=seconds, unicode=True)
        if not answer.results:
            raise unusable_answer("info", answer)
        result = answer.results[0]
        return ServerFacts(
            unicode=result.get("unicode", "") == "enabled",
            # `hybrid` servers treat names that differ in case as one name, too.
            case_sensitive=result.get("caseHandling", "sensitive") == "sensitive",
            version=result.get("serverVersion", ""),
            server_id=result.get("serverID", ""),
        )

    def _raise_for(self, subcommand: str, result: CommandResult, answer: records.Answer) -> None:
        """Raise when a command failed: warnings exit with 0, and errors may, too."""
        worst = next((message for message in answer.messages if message.severity >= 3), None)
        if worst is not None:
            verdict = verdict_of(worst)
            if verdict.outcome is Outcome.EMPTY:
                # A message we know as harmless, with a severity that says it is not.
                verdict = Verdict(Outcome.PERMANENT, verdict.error_class, verdict.detail)
            raise self._failure(verdict, worst.text, subcommand=subcommand)
        on_stderr = verdict_of_stderr(result.stderr)
        silent = answer.is_empty and result.exit_code != 0
        if on_stderr is not None and (
            silent or on_stderr.outcome in (Outcome.TRANSIENT, Outcome.PAUSE, Outcome.SPLIT)
        ):
            raise self._failure(on_stderr, result.stderr, subcommand=subcommand)
        if result.exit_code < 0 or answer.cut_off:
            raise _killed(subcommand, result)
        if answer.bad_lines or silent:
            raise unusable_answer(subcommand, answer, exit_code=result.exit_code)

    def _failure(self, verdict: Verdict, text: str, *, subcommand: str) -> Failure:
        if verdict.outcome is Outcome.PAUSE:
            # A repair of the server or the account may change the answer of `info`.
            self._facts = None
        if "security_alert" in verdict.context:
            log.critical("security_event", kind=verdict.context["security_alert"], source="perforce")
        return verdict.failure(text, subcommand=subcommand)

    def _timed_out(self, subcommand: str, timeout_seconds: float) -> RetryableFailure:
        """Return the failure of a timeout, which counts as an outage only if the server is silent."""
        alive, detail = False, "the server does not answer"
        if subcommand not in ("info", "version"):
            try:
                self.check_health()
                alive, detail = True, "the server answers, but not to this command within its time"
            except Failure as failure:
                log.info("probe_failed", source="perforce", **failure.facts)
        return retryable(
            ErrorClass.NETWORK_TIMEOUT if alive else ErrorClass.NETWORK_UNREACHABLE,
            detail,
            subcommand=subcommand,
            timeout_seconds=timeout_seconds,
            server_alive=alive,
        )


def meaning_of(answer: records.Answer) -> Meaning:
    """Return the meaning of the first harmless message of an answer."""
    return next((verdict_of(message).meaning for message in answer.messages), Meaning.NONE)


def unusable_answer(
    subcommand: str, answer: records.Answer, *, exit_code: int | None = None
) -> PermanentFailure:
    """Return the failure for an answer in an undocumented form."""
    return permanent(
        ErrorClass.SCHEMA_INVALID,
        "p4 answered in a form that is not documented",
        subcommand=subcommand,
        exit=exit_code,
        results=len(answer.results),
        messages=len(answer.messages),
        bad_lines=answer.bad_lines,
    )


def _killed(subcommand: str, result: CommandResult) -> RetryableFailure:
    return unavailable(
        "p4 ended in the middle of its answer",
        subcommand=subcommand,
        exit=result.exit_code,
        stdout_bytes=len(result.stdout),
    )
