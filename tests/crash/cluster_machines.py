"""Program of `test_cluster_network`: two machines, and what one reads of the other.

It prints that as one line of JSON.
"""

import json
import socket
import subprocess
import sys
import time

import psutil

from benchmarks import cluster_network
from benchmarks.cluster_network import Machine
from benchmarks.ground import CannotRun, until

_SERVER = (
    "import socket; s = socket.create_server(('{}', 7)); [s.accept()[0].send(b'hello') for _ in iter(int, 1)]"
)


def seconds(address: str) -> float | None:
    """Return how long a word of the machine takes to come; None when it does not in two seconds."""
    begun = time.monotonic()
    try:
        with socket.create_connection((address, 7), 2) as one:
            one.settimeout(2)
            return time.monotonic() - begun if one.recv(5) == b"hello" else None
    except OSError:
        return None


def card(machine: Machine) -> str:
    """Return the hardware address by which others remember a machine."""
    line = subprocess.check_output([*machine.inside, "ip", "-brief", "link", "show", "eth0"], text=True)
    return line.split()[2]


def main() -> None:
    try:
        cluster_network.enter()
    except CannotRun as error:
        sys.exit(f"cannot: {error}")
    cluster_network.make_bridge()
    machine = Machine("app1", 11)
    machine.switch_on()
    machine.start([sys.executable, "-c", _SERVER.format(machine.address)], {}, subprocess.DEVNULL)
    until(lambda: seconds(machine.address) is not None, 20, "the machine does not answer")
    found: dict[str, object] = {"fast": seconds(machine.address)}
    cards = [card(machine)]
    found["name"] = subprocess.check_output([*machine.inside, "hostname"], text=True).strip()
    machine.spoil(delay=0.1)
    found["slow"] = seconds(machine.address)
    machine.heal()
    machine.spoil(loss_out=1.0)
    found["deaf"] = seconds(machine.address)
    machine.heal()
    machine.cut()
    found["cut"] = seconds(machine.address)
    machine.heal()
    until(lambda: seconds(machine.address) is not None, 20, "the machine does not come back")
    machine.switch_off()
    found["off"] = seconds(machine.address)
    found["processes"] = [p.name() for p in psutil.process_iter() if p.name().startswith("python")]
    machine.switch_on()
    found["cards"] = [*cards, card(machine)]
    print(json.dumps(found), flush=True)
    time.sleep(60)  # to be killed


if __name__ == "__main__":
    main()
