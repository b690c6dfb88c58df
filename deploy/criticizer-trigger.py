#!/usr/bin/env python3
# Python 3.6 or newer and nothing else. Imports inside functions keep the start fast.
# ruff: noqa: PTH100, PTH104, PTH108, PTH110, PTH116, PTH118, PTH120, PTH123, PTH208
"""Post a Perforce changelist to Criticizer. Copy this one file onto the Perforce server.

    criticizer-trigger.py [--config FILE] EVENT CHANGE [SERVER]
    criticizer-trigger.py [--config FILE] --flush
    criticizer-trigger.py [--config FILE] --check
    criticizer-trigger.py --help

p4d calls it from the triggers table with EVENT `change-commit` or `shelve-commit`. It never
delays or fails a submit or a shelve: it detaches at once, prints nothing, and always exits
with 0. Errors are in the system log.

The event is appended to the spool file, then everything in the spool is posted. Events that
cannot be posted stay there for the next call, or for cron with `--flush`. Posting an event
twice is harmless: the service makes one review of it.

`--check` tests configuration, key, spool and service, posts no event, and exits with 1 when
something is wrong. On a terminal, which p4d never gives its triggers, wrong arguments are
answered with a message and status 2.
"""

import os
import sys

DEFAULT_CONFIG = "/etc/criticizer-trigger.conf"
EVENTS = ("change-commit", "shelve-commit")
EVENTS_PATH = "/api/v1/triggers/perforce/"
POST_SECONDS = 5  # for one event, from the name look-up to the answer
RUN_SECONDS = 60  # for one run; the rest waits for the next
SPOOL_BYTES = 1024 * 1024  # about fifteen thousand events
NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class RefusedError(Exception):
    """An event that the service will never accept."""


class UnreachableError(Exception):
    """An event that could not be posted now."""


def main(arguments):
    """Detach and post; p4d waits only for a fork. Returns the exit status."""
    status = 0
    try:
        path, words = DEFAULT_CONFIG, arguments
        if words[:1] == ["--config"]:
            path, words = "".join(words[1:2]), words[2:]
        path = os.path.abspath(path) if path else ""  # a detached process has another directory
        if words[:1] in (["--help"], ["-h"]):
            say(__doc__.strip())
            return status
        if words[:1] == ["--check"]:
            status = 1
            return check(path)
        flush = "--flush" in words
        words = [word for word in words if word != "--flush"]
        if is_terminal() and complain(path, words, flush):
            return 2
        if flush or detach():
            run(path, words, flush)
    except UnreachableError as error:
        log(f"stopped: {error}")
    except BaseException as error:  # noqa: BLE001  a failing trigger would show in the user's terminal
        log(f"stopped: {type(error).__name__}: {error}")
    return status


def run(path, words, flush):
    """Spool the event in `words`, then post the spool."""
    settings = read_config(path)
    if words or not flush:
        line = encode(parse_event(words, settings))
        try:
            append(settings["spool"], line)
        except (OSError, ValueError) as error:
            log(f"cannot spool, posting at once: {error}")
            post(settings, read_key(settings["key_file"]), line)
    replay(settings, read_key(settings["key_file"]))


def detach():
    """Return True in a process of its own session that holds no descriptor of the caller.

    p4d waits until every copy of the pipe it gave us is closed, so all of them are.
    """
    if os.fork() != 0:
        return False
    os.closerange(0, 256)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    try:
        rest = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        rest = list(range(256, 4096))
    for descriptor in rest:
        if descriptor > 2:
            os.closerange(descriptor, descriptor + 1)
    os.chdir("/")
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    return True


def log(message):
    """Write one line to the system log, and to a terminal; cut and without control characters."""
    message = "".join(c if c.isprintable() else "?" for c in message[:500])
    try:
        if is_terminal():
            say("criticizer-trigger: " + message)
        import syslog

        syslog.openlog("criticizer-trigger", syslog.LOG_PID, syslog.LOG_DAEMON)
        syslog.syslog(syslog.LOG_WARNING, message)
    except Exception:  # noqa: BLE001, S110  there is no other place to report it
        pass


# -- input ------------------------------------------------------------------------------------


def read_config(path):
    """Return the settings of a file of `name = value` lines. Raises OSError, ValueError.

    Paths in it are relative to its directory.
    """
    settings = {"server": "main", "ca_file": "", "spool": path + ".spool"}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            name, separator, value = line.partition("=")
            name = name.strip()
            if not separator or name not in ("url", "key_file", "server", "spool", "ca_file"):
                raise ValueError(f"{path}: {line[:40]!r} is not a setting")
            settings[name] = value.strip()
    for name in ("url", "key_file", "spool"):
        if not settings.get(name):
            raise ValueError(f"{path}: {name} is not set")
    if not settings["url"].startswith(("https://", "http://")):
        raise ValueError(f"{path}: url must start with https:// or http://")
    for name in ("key_file", "spool", "ca_file"):
        if settings[name]:
            settings[name] = os.path.join(os.path.dirname(path), settings[name])
    return settings


def read_key(path):
    """Return the API key. Raises ValueError when other accounts may open the file."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise ValueError(f"{path} is open to other accounts, events wait: chmod 600 it")
        key = file.read(1024).decode("ascii", "replace").strip()
    if not key or not key.isprintable() or " " in key:
        raise ValueError(f"{path} does not hold an API key, events wait")
    return key


def parse_event(words, settings):
    """Return the event as a dictionary. Raises ValueError: p4d's variables can hold anything."""
    if not 2 <= len(words) <= 3:
        raise ValueError(f"expected EVENT CHANGE [SERVER], got {len(words)} arguments")
    event, change = words[0], words[1]
    # An unknown or empty %serverid% arrives as itself or not at all.
    server = words[2] if len(words) == 3 and words[2] and "%" not in words[2] else settings["server"]
    if event not in EVENTS:
        raise ValueError(f"unknown event {event[:40]!r}")
    # As bytes: text also calls other scripts' digits digits.
    if len(change) > 10 or not change.encode("ascii", "replace").isdigit() or int(change) == 0:
        raise ValueError(f"not a changelist number: {change[:40]!r}")
    if not 0 < len(server) <= 64 or not NAME.issuperset(server) or server[0] in "._-":
        raise ValueError(f"not a server id: {server[:40]!r}")
    return {"event": event, "change": int(change), "server": server}


# -- the spool --------------------------------------------------------------------------------
#
# SPOOL          events that wait; appended to under its own short lock
# SPOOL.sending  the spool as one run took it; a "#" is written before an event that is done
# SPOOL.lock     held by the run that posts


def encode(event):
    """Return the event as one line of JSON after a space, which a "#" replaces when it is done."""
    import json

    return b" " + json.dumps(event, sort_keys=True).encode("ascii")


def append(spool, line):
    """Add one line. Raises OSError, and ValueError when the spool is full."""
    import fcntl

    while True:
        descriptor = os.open(spool, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            held = os.fstat(descriptor)
            try:
                if not os.path.samestat(os.stat(spool), held):
                    continue  # a run took the file while we waited for the lock
            except FileNotFoundError:
                continue
            if held.st_size > SPOOL_BYTES:
                raise ValueError(f"{spool} is full")
            # The newline before it keeps this line whole after one that a full disk cut off.
            os.write(descriptor, b"\n" + line + b"\n")
            return
        finally:
            os.close(descriptor)


def replay(settings, key):
    """Post everything in the spool, unless another run is doing so.

    Raises UnreachableError, OSError.
    """
    import fcntl
    import time

    spool = settings["spool"]
    until = time.monotonic() + RUN_SECONDS
    lock = os.open(spool + ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    # Checked again after the lock is free: a call that met our lock relies on it.
    while os.path.exists(spool) or os.path.exists(spool + ".sending"):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        try:
            while take(spool):
                send_file(spool + ".sending", settings, key, until)
                os.unlink(spool + ".sending")
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)


def take(spool):
    """Move the spool aside as the file to send, unless an earlier run left one.

    Return False when there is nothing to send.
    """
    import fcntl

    if os.path.exists(spool + ".sending"):
        return True
    try:
        descriptor = os.open(spool, os.O_WRONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.rename(spool, spool + ".sending")
    finally:
        os.close(descriptor)
    return True


def send_file(path, settings, key, until):
    """Post the events of a file that are not done. Raises UnreachableError when one must wait."""
    import time

    done = set()
    with open(path, "r+b", buffering=0) as file:
        offset = 0
        for line in file.read().split(b"\n"):
            start, offset = offset, offset + len(line) + 1
            if not line or line.startswith(b"#"):
                continue
            if line not in done:
                if time.monotonic() > until:
                    raise UnreachableError("the time for one run is over, events wait")
                try:
                    post(settings, key, line)
                except RefusedError as error:
                    log(f"dropped: {error}")
                done.add(line)
            os.pwrite(file.fileno(), b"#", start)


# -- the service ------------------------------------------------------------------------------


def post(settings, key, line):
    """Post one line. Raises RefusedError, UnreachableError."""
    body = line.strip()
    if not body.startswith(b"{") or not body.endswith(b"}"):
        raise RefusedError("not an event in the spool")
    try:
        status, text = ask(settings, "POST", EVENTS_PATH, give_up, body, key)
    except (OSError, ValueError) as error:
        raise UnreachableError(f"the service cannot be reached, events wait: {error!r}")  # noqa: B904
    if status == 413 or (status == 400 and blames_event(text)):
        raise RefusedError(f"the service answered {status} to {body!r}")
    if not 200 <= status < 300:
        raise UnreachableError(f"the service answered {status}, events wait")


def ask(settings, method, path, too_late, body=None, key=None):
    """Return the status and the first bytes of an answer. Raises OSError, ValueError.

    A name look-up cannot be timed out from inside, so another thread calls `too_late`, which
    ends the process. No event is lost by that: an event is done only when it is marked.
    """
    import http.client
    import threading
    from urllib.parse import urlsplit

    timer = threading.Timer(POST_SECONDS, too_late)
    timer.daemon = True
    timer.start()
    try:
        url = urlsplit(settings["url"])
        kind, options = http.client.HTTPConnection, {"timeout": POST_SECONDS - 1}
        if url.scheme == "https":
            import ssl

            kind = http.client.HTTPSConnection
            options["context"] = ssl.create_default_context(cafile=settings["ca_file"] or None)
        connection = kind(url.hostname, url.port, **options)
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = "Bearer " + key
        connection.request(method, url.path.rstrip("/") + path, body, headers)
        answer = connection.getresponse()
        found = answer.status, answer.read(4096)
        connection.close()
        return found
    except http.client.HTTPException as error:
        raise ValueError(f"not an HTTP answer: {error!r}")  # noqa: B904
    finally:
        timer.cancel()


def blames_event(text):
    """Return whether a 400 is about the event.

    That of a proxy is not, nor one for a host that is not allowed.
    """
    return b"SCHEMA_INVALID" in text and b'"request"' not in text


def give_up():
    """End the process: the service took longer than POST_SECONDS."""
    log(f"the service did not answer in {POST_SECONDS} s, events wait")
    os._exit(0)


# -- on a terminal ----------------------------------------------------------------------------


def say(text):
    """Print without a buffer that would have to be flushed."""
    os.write(1, (text + "\n").encode("utf-8", "replace"))


def is_terminal():
    """Return whether a person called: p4d, cron and a detached process have no terminal."""
    try:
        return os.isatty(1) and os.isatty(2)
    except OSError:
        return False


def complain(path, words, flush):
    """Print what is wrong with the arguments or the configuration; return whether something is."""
    try:
        settings = read_config(path)
        if words or not flush:
            parse_event(words, settings)
    except (OSError, ValueError) as error:
        say(f"criticizer-trigger: {error}\nTry --help, or --check.")
        return True
    return False


def check(path):
    """Print one line for each thing that must be right; return 0 when all are, else 1."""
    try:
        settings = read_config(path)
    except (OSError, ValueError) as error:
        return report(False, "configuration", error)
    report(True, "configuration", path)
    return max([check_file(settings, "key"), check_file(settings, "spool"), check_service(settings)])


def report(is_good, what, text):
    """Print one line of the check; return the exit status it stands for."""
    say(f"{'ok  ' if is_good else 'FAIL'}  {what:14} {text}")
    return 0 if is_good else 1


def check_file(settings, what):
    try:
        text = describe_key(settings["key_file"]) if what == "key" else describe_spool(settings["spool"])
    except (OSError, ValueError) as error:
        return report(False, what, error)
    return report(True, what, text)


def describe_key(path):
    read_key(path)
    found = os.stat(path)
    if found.st_uid != os.getuid():
        # Only root gets here: what root can open does not show what p4d's account can.
        raise ValueError(f"{path} belongs to account {found.st_uid}: run this check as that one")
    return f"{path}, mode {found.st_mode & 0o777:04o}"


def describe_spool(spool):
    """Open the files of a run; return the spool's path and how many events wait.

    Makes no file: it would belong to the wrong account.
    """
    directory = os.path.dirname(spool)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise ValueError(f"{directory} is not a directory that can be written to")
    waiting = 0
    for name in (spool, spool + ".sending", spool + ".lock"):
        if os.path.lexists(name):
            with open(os.open(name, os.O_RDWR | os.O_NOFOLLOW), "rb") as file:
                waiting += sum(1 for line in file if line.strip() and not line.startswith(b"#"))
    return f"{spool}, {waiting} waiting"


def check_service(settings):
    """Check that the service lives, then that it would take an event with this key."""
    url = settings["url"]

    def too_late():
        report(False, "service", f"{url} did not answer in {POST_SECONDS} s")
        os._exit(1)

    try:
        status, _ = ask(settings, "GET", "/livez", too_late)
        if status != 200:
            return report(False, "service", f"{url}/livez answered {status}: {advice(status)}")
        report(True, "service", url)
        try:
            key = read_key(settings["key_file"])
        except (OSError, ValueError):
            return 1  # the line of the key says so
        # An empty event: the service refuses it only after it accepted the key.
        status, text = ask(settings, "POST", EVENTS_PATH, too_late, b"{}", key)
    except (OSError, ValueError) as error:
        return report(False, "service", f"{url} cannot be reached: {error}")
    if status == 400 and blames_event(text):
        return report(True, "access", "the service takes events with this key")
    if status == 400 and b"no Perforce server" in text:
        return report(
            False, "access", "the service has no Perforce server: set P4PORT, and perforce in CHANGE_SOURCES"
        )
    return report(False, "access", f"the service answered {status}: {advice(status)}")


def advice(status):
    if 300 <= status < 400:
        return "write the address it redirects to as url"
    known = {
        400: "the host of url must be in its ALLOWED_HOSTS",
        401: "the key is revoked or mistyped: make a new one",
        403: "the key has another role than trigger",
        404: "this is not Criticizer: correct url",
        429: "too many requests: try again later",
        503: "it cannot reach its database, or starts: look at /readyz",
    }
    return known.get(status, "look at the service's log")


if __name__ == "__main__":
    # Not sys.exit: nothing is left to flush, and no clean-up may change the exit code.
    os._exit(main(sys.argv[1:]))
