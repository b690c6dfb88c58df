"""A TCP port that refuses, resets or stays silent until it is mended.

It then forwards to a server.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

from tests.fakes import closed

_RESET = struct.pack("ii", 1, 0)  # a linger of zero makes close() send RST


class Line:
    """A port whose line is troubled: `refuse`, `reset` (after the first bytes) or `silent`."""

    def __init__(self, target: int, mode: str) -> None:
        self.mode = mode
        self._target = target
        self._open: list[socket.socket] = []
        self._server = closed.held()
        self.port: int = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        if mode != "refuse":
            self._listen()

    def mend(self) -> None:
        """Forward everything from now on."""
        was, self.mode = self.mode, "forward"
        if was == "refuse":
            self._listen()

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown(socket.SHUT_RDWR)
            self._thread.join(10)
        self._server.close()
        for each in self._open:
            each.close()

    def _listen(self) -> None:
        self._server.listen(16)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._server.accept()
            except OSError:
                return
            self._open.append(caller)
            if self.mode == "forward":
                callee = socket.create_connection(("127.0.0.1", self._target))
                self._open.append(callee)
                for source, sink in ((caller, callee), (callee, caller)):
                    threading.Thread(target=_pump, args=(source, sink), daemon=True).start()
            elif self.mode == "reset":
                caller.recv(1)
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                caller.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
