"""Machines of the cluster drill: namespaces on one bridge, and links that can be spoiled.

The drill works in a network and process namespace of its own (`enter`), so that whatever it makes goes with
it, also after a kill. In it each `Machine` has a namespace for network, processes and host name, and a cable
to the bridge. A machine that is switched off loses all processes and the cable at once.

On a machine 127.0.0.1 is the drill's own loopback: the drill's peers listen there, and the product accepts
plain HTTP from there alone. The kernel's `netem` is not everywhere, so a thread carries the frames of a
spoiled link (`_Carrier`), with delay and with loss by direction; TCP knows no difference.
"""

from __future__ import annotations

import contextlib
import ctypes
import heapq
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

import psutil

from benchmarks.ground import CannotRun, until

BRIDGE = "br0"
NETWORK = "10.77.0"
LAST_WORDS_SECONDS = 60.0  # from a signal until the drill is killed
_ENTERED = "CRITICIZER_DRILL_NAMESPACE"
_TOOLS = ("ip", "unshare", "nsenter", "setpriv", "sysctl")
_UNSHARE = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
# The first process of a machine ends the others with it, and reaps what they leave.
_INIT = 'hostname "$0"; while :; do sleep 3600 & wait; done'
_SOL_PACKET, _PACKET_VNET_HDR, _PACKET_OUTGOING = 263, 15, 4
_ETH_P_ALL = 0x0003
_VNET_HEADER = 10  # bytes that hold checksum and segmentation: kept with the frame


def obstacle() -> str:
    """Return why namespaces cannot be made here, in one sentence; "" where they can."""
    missing = [name for name in _TOOLS if shutil.which(name) is None]
    if missing:
        return f"{missing[0]} is not installed: install it (Debian: iproute2, util-linux and procps)."
    if os.geteuid() != 0:
        return "only root can make network namespaces: run the cluster drill as root."
    script = "ip link add br0 type bridge && ip link add p1 type veth peer name x1"
    tried = subprocess.run([*_UNSHARE, "sh", "-c", script], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        why = " ".join(tried.stderr.split())[:200]
        return f"network namespaces, a bridge and veth devices cannot be made here ({why})."
    return ""


def enter() -> None:
    """Continue this program in Linux namespaces of its own; return when it is in them.

    The process outside waits for it, passes SIGTERM, SIGINT and SIGHUP on and ends with its status. Raises
    CannotRun.
    """
    if os.environ.get(_ENTERED):
        return
    if problem := obstacle():
        raise CannotRun(problem)
    # The kernel tells the drill when the caller, such as make, is gone. In a session of their own, the
    # machines' processes do not hear Ctrl-C.
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "--", *_UNSHARE, "--", sys.executable, *sys.orig_argv[1:]],
        env={**os.environ, _ENTERED: "1"}, start_new_session=True,
    )  # fmt: skip

    def tell(number: int, _: object) -> None:
        # unshare itself blocks signals; the program that it waits for is told.
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children():
                child.send_signal(number)
        signal.setitimer(signal.ITIMER_REAL, LAST_WORDS_SECONDS)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, tell)
    signal.signal(signal.SIGALRM, lambda *_: process.kill())
    sys.exit(process.wait())


def make_bridge() -> None:
    """Make the bridge that all cables end at; the drill itself has its first address."""
    _ip("link", "set", "lo", "up")
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("addr", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")
    # Machines reach 127.0.0.1 through the bridge, and through nothing else.
    _sysctl(f"{BRIDGE}.route_localnet=1", "all.rp_filter=0", "default.rp_filter=0", "default.arp_ignore=1")


def _ip(*arguments: str, inside: Sequence[str] = ()) -> None:
    subprocess.run([*inside, "ip", *arguments], check=True, stdout=subprocess.DEVNULL)


def _sysctl(*settings: str, inside: Sequence[str] = ()) -> None:
    subprocess.run([*inside, "sysctl", "-qw", *(f"net.ipv4.conf.{one}" for one in settings)], check=True)


@dataclass
class Machine:
    """One machine of the cluster. `number` makes its address; it is off until `switch_on`."""

    name: str
    number: int
    _holder: subprocess.Popen[bytes] | None = None
    _init: int = 0
    _carrier: _Carrier | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def address(self) -> str:
        return f"{NETWORK}.{self.number}"

    @property
    def _port(self) -> str:
        return f"p{self.number}"

    @property
    def inside(self) -> list[str]:
        """Return the beginning of a command line that runs on this machine."""
        return ["nsenter", "--target", str(self._init), "--net", "--uts", "--pid", "--mount"]

    @property
    def is_on(self) -> bool:
        return self._holder is not None

    def switch_on(self) -> None:
        flags = [*_UNSHARE, "--uts"]
        self._holder = subprocess.Popen(
            [*flags, "sh", "-c", _INIT, self.name], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(self._has_begun, 20, f"{self.name} did not start")
        # With the same card: others would send to the one that they remember, for half a minute.
        card = f"02:00:00:00:00:{self.number:02x}"
        cable = ["type", "veth", "peer", "name", "eth0", "address", card, "netns", str(self._init)]
        _ip("link", "add", self._port, *cable)
        _ip("link", "set", self._port, "master", BRIDGE, "up")
        inside = self.inside
        _ip("link", "set", "lo", "up", inside=inside)
        _ip("addr", "add", f"{self.address}/24", "dev", "eth0", inside=inside)
        _ip("link", "set", "eth0", "up", inside=inside)
        _sysctl("all.route_localnet=1", "eth0.route_localnet=1", "all.rp_filter=0", inside=inside)
        _ip("addr", "del", "127.0.0.1/8", "dev", "lo", inside=inside)
        _ip("route", "add", "127.0.0.1/32", "dev", "eth0", "src", self.address, inside=inside)

    def _has_begun(self) -> bool:
        assert self._holder is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._holder.pid).children():
                if child.cmdline()[:1] == ["sh"]:
                    self._init = child.pid
                    return True
        return False

    def switch_off(self) -> None:
        """Lose every process and the cable, as with the power."""
        self.heal()
        if self._holder is None:
            return
        self.cut()  # first: a machine without power closes no connection
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._init, signal.SIGKILL)  # the kernel ends all others of the namespace
        self._holder.wait()
        self._holder = None
        subprocess.run(["ip", "link", "del", self._port], check=False, capture_output=True)

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        output: IO[bytes] | int,
        account: int = 0,
    ) -> subprocess.Popen[bytes]:
        """Start a program on this machine, as another account where one is given."""
        as_account = (
            ["setpriv", f"--reuid={account}", f"--regid={account}", "--clear-groups"] if account else []
        )
        return subprocess.Popen(
            [*self.inside, "--", *as_account, *command],
            env=dict(environment), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip

    # -- the cable ----------------------------------------------------------------------------

    def cut(self) -> None:
        """Take the cable off the bridge. The machine sees its own end as it was."""
        with self._lock:
            _ip("link", "set", self._port, "nomaster")

    def spoil(self, *, delay: float = 0.0, loss_in: float = 0.0, loss_out: float = 0.0) -> None:
        """Delay every frame by `delay` seconds and lose a share of those to and from the machine."""
        with self._lock:
            near, far = f"x{self.number}", f"y{self.number}"
            _ip("link", "add", near, "type", "veth", "peer", "name", far)
            _ip("link", "set", far, "master", BRIDGE, "up")
            _ip("link", "set", near, "up")
            _ip("link", "set", self._port, "nomaster")
            self._carrier = _Carrier(self._port, near, delay, loss_in, loss_out)
            self._carrier.start()

    def heal(self) -> None:
        """Put the cable back as it was."""
        with self._lock:
            if self._carrier is not None:
                self._carrier.stop()
                self._carrier = None
                _ip("link", "del", f"x{self.number}")
            subprocess.run(
                ["ip", "link", "set", self._port, "master", BRIDGE], check=False, capture_output=True
            )


class _Carrier(threading.Thread):
    """Carries frames between two devices, late and with losses."""

    def __init__(self, machine: str, bridge: str, delay: float, loss_in: float, loss_out: float) -> None:
        super().__init__(name=f"carrier of {machine}", daemon=True)
        self._sockets = [_packets(machine), _packets(bridge)]
        self._loss = {self._sockets[0]: loss_out, self._sockets[1]: loss_in}
        self._delay = delay
        self._dice = random.Random(machine)
        self._is_over = threading.Event()

    def run(self) -> None:
        waiting: list[tuple[float, int, int, bytes]] = []
        count = 0
        while not self._is_over.is_set():
            wait = min(0.1, max(0.0, waiting[0][0] - time.monotonic())) if waiting else 0.1
            for ready in select.select(self._sockets, [], [], wait)[0]:
                for frame in _frames(ready):
                    if self._dice.random() >= self._loss[ready]:
                        count += 1
                        to = 1 - self._sockets.index(ready)
                        heapq.heappush(waiting, (time.monotonic() + self._delay, count, to, frame))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, to, frame = heapq.heappop(waiting)
                with contextlib.suppress(OSError):  # the machine may be off
                    self._sockets[to].send(frame)
        for one in self._sockets:
            one.close()

    def stop(self) -> None:
        self._is_over.set()
        self.join(5)


def _packets(device: str) -> socket.socket:
    """Return a socket of every frame that comes in at `device`; what is sent goes out there."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    made.setsockopt(
        _SOL_PACKET, _PACKET_VNET_HDR, 1
    )  # frames are unsegmented and unsummed between namespaces
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    made.bind((device, _ETH_P_ALL))
    made.setblocking(False)
    return made


def _frames(ready: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # BlockingIOError when there are no more; others when it is gone
        for _ in range(64):
            frame, origin = ready.recvfrom(_VNET_HEADER + 65_550)
            if origin[2] != _PACKET_OUTGOING:
                yield frame
