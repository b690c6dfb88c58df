"""Deliveries a second, one worker, by provider: claim, send to a double on loopback, mark.

The maildir, which needs no server, is the peer: what a provider costs beyond the protocol itself.
Every server keeps a ledger; a figure whose ledger does not hold each message once is no figure.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.figures import Figure, emit, percentile, say
from benchmarks.ground import prepared

DELIVERIES = 200
ROUNDS = 3


def measured(name: str) -> float:
    """Return the deliveries a second of a provider, the middle one of some rounds."""
    from benchmarks import matrix_rigs
    from benchmarks.matrix_jobs import prepared_job
    from notifications.delivery import send
    from notifications.models import UnarchivedMail
    from notifications.recipients import split

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="criticizer-deliveries-")))
        rig = matrix_rigs.RIGS[name](stack, folder, 1.0)
        channel, _ = split(rig.recipient(0))
        providers = {channel: matrix_rigs.provider_of(rig.spec, UnarchivedMail.objects)}
        rates = []
        for turn in range(ROUNDS):
            jobs = [prepared_job(rig, f"{name}-{turn}", number) for number in range(DELIVERIES)]
            began = time.perf_counter()
            for job in jobs:
                send.deliver(job, providers, may_continue=lambda: True)
            rates.append(DELIVERIES / (time.perf_counter() - began))
            say(f"{name}: {rates[-1]:.0f} deliveries a second")
        arrived = rig.arrived()
        if len(arrived) != ROUNDS * DELIVERIES or set(arrived.values()) != {1}:
            raise AssertionError(
                f"{name}: {len(arrived)} messages arrived, not {ROUNDS * DELIVERIES}, once each"
            )
        return percentile(rates, 50)


def main() -> int:
    with prepared({"LOG_LEVEL": "ERROR"}) as ground, ground.database():
        from benchmarks.matrix_rigs import CHECK_CHANNELS, RIGS, why_missing

        names = [name for name in RIGS if name not in {"webhook, not idempotent", *CHECK_CHANNELS}]
        rates = {}
        for name in names:
            if reason := why_missing(name):
                say(f"{name} is left out: {reason}")
            else:
                rates[name] = measured(name)
    figures = [
        Figure(
            f"deliveries_{name.replace('+', '_')}",
            rate,
            "deliveries/s",
            peer=None if name == "maildir" else "maildir",
            peer_value=None if name == "maildir" else rates["maildir"],
        )
        for name, rate in rates.items()
    ]
    emit(figures)
    return 0 if all(figure.ok for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
