"""Load generator in a process of its own: many connections, repeated keys, bursts.

`python -m benchmarks.load PORT`, with the API key in BENCHMARK_KEY, posts review requests for a few seconds
and prints one JSON object: requests, seconds, statuses, latencies in ms. Repeated keys are taken from the
newest ones, most of them still in flight on another connection.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import time
from collections import Counter, deque
from collections.abc import Callable

from benchmarks.figures import percentile

_RECENT = 8


class Connection:
    """One kept-alive HTTP connection."""

    def __init__(self, port: int, key: str, path: str) -> None:
        self._port = port
        self._head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        )
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> None:
        self._streams = await asyncio.open_connection("127.0.0.1", self._port)

    def close(self) -> None:
        if self._streams:
            self._streams[1].close()
            self._streams = None

    async def post(self, body: bytes) -> int:
        """Send one request; return the status, 599 for a connection that broke instead."""
        try:
            if self._streams is None:
                await self.open()
            assert self._streams
            reader, writer = self._streams
            writer.write(f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(head.split("content-length:")[1].split("\r\n", 1)[0])
            await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return 599
        if "connection: close" in head:
            self.close()
        return int(head.split(" ", 2)[1])


def body_of(number: int) -> bytes:
    recipients = ["mail:ann@example.com"]
    return json.dumps(
        {"idempotency_key": f"load-{number}", "changelist_id": str(number), "recipients": recipients}
    ).encode()


class Load:
    """Counts what came back."""

    def __init__(self, connect: Callable[[], Connection], first: int) -> None:
        self._connect = connect
        self.statuses: Counter[int] = Counter()
        self.latencies: list[float] = []
        self._issued = first
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._random = random.Random(1)

    async def run(self, connections: int, seconds: float, duplicates: float) -> None:
        end = time.monotonic() + seconds
        await asyncio.gather(*(self._post_until(end, duplicates) for _ in range(connections)))

    async def _post_until(self, end: float, duplicates: float) -> None:
        connection = self._connect()
        while (started := time.monotonic()) < end:
            if self._recent and self._random.random() < duplicates:
                number = self._random.choice(self._recent)
            else:
                number = self._issued = self._issued + 1
                self._recent.append(number)
            self.statuses[await connection.post(body_of(number))] += 1
            self.latencies.append(1000 * (time.monotonic() - started))
        connection.close()

    async def bursts(self, count: int, size: int) -> None:
        """Send `size` identical requests at once, `count` times."""
        for _ in range(count):
            self._issued += 1
            connections = [self._connect() for _ in range(size)]
            await asyncio.gather(*(connection.open() for connection in connections))
            body = body_of(self._issued)
            self.statuses.update(await asyncio.gather(*(connection.post(body) for connection in connections)))
            for connection in connections:
                connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("port", type=int)
    parser.add_argument("--path", default="/api/v1/reviews/")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--duplicates", type=float, default=0.2)
    parser.add_argument("--bursts", type=int, default=0, help="instead: bursts of 50 identical requests")
    parser.add_argument("--first", type=int, default=0, help="numbers above it make the keys")
    given = parser.parse_args()
    key = os.environ["BENCHMARK_KEY"]
    load = Load(lambda: Connection(given.port, key, given.path), given.first)
    started = time.monotonic()
    work = load.bursts(given.bursts, 50) if given.bursts else load.run(
        given.connections, given.seconds, given.duplicates
    )  # fmt: skip
    asyncio.run(work)
    print(
        json.dumps(
            {
                "requests": load.statuses.total(),
                "seconds": time.monotonic() - started,
                "statuses": load.statuses,
                "p50": percentile(load.latencies or [0.0], 50),
                "p95": percentile(load.latencies or [0.0], 95),
            }
        )
    )


if __name__ == "__main__":
    main()
