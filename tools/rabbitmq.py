"""A private RabbitMQ node, with Debian's package unpacked into the project's own folder where it is not installed."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

from tools.debian import Program, program_once, reachable
from tools.places import free_port
from tools.server_process import PATIENCE, ServerFailed, ServerProcess, end_of, kill

NAME = "rabbitmq"
PACKAGE = "rabbitmq-server"
OWN = "POSTLUDE_TEST_RABBITMQ"
"""The user's own server, used instead of the shared one."""
SHARED = "POSTLUDE_TEST_RABBITMQ_SHARED"
"""The one that `dev test` has launched for all its workers."""
MISSING = "POSTLUDE_TEST_RABBITMQ_MISSING"
"""Why there is none; set by `dev test`, so that it is looked for once."""
MAX_MESSAGE_BYTES = 2_000_000

CONFIGURATION = """\
listeners.tcp.1 = 127.0.0.1:{port}
loopback_users = none
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 512MB
max_message_size = {max_bytes}
"""

# The package's own `erl` names /usr/lib/erlang, wherever it was unpacked.
ERL = """\
#!/bin/sh
ROOTDIR={root}
BINDIR={erts}/bin
EMU=beam
PROGNAME=erl
export ROOTDIR BINDIR EMU PROGNAME
exec "$BINDIR/erlexec" "$@"
"""


def available() -> Program:
    """Raises LookupError with the reason."""
    return program_once(PACKAGE, MISSING, f" (by hand: apt-get install --no-install-recommends {PACKAGE})")


def version_at(port: int, host: str = "127.0.0.1") -> str | None:
    """It greets whoever speaks its protocol, as soon as it has started; None while nobody does."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        try:
            probe.connect((host, port))
            probe.sendall(b"AMQP\x00\x00\x09\x01")
            said = probe.recv(4096)
        except OSError:
            return None
    found = re.search(rb"\x07versionS\x00{3}.([0-9.]+)", said)
    return found[1].decode() if found else None


def wait_for(url: str) -> None:
    """Until it answers: one that was only launched needs a few seconds. Raises ServerFailed."""
    place = urlsplit(url)
    if place.scheme != "amqp":
        return
    deadline = time.monotonic() + PATIENCE
    while version_at(place.port or 5672, place.hostname or "127.0.0.1") is None:
        if time.monotonic() > deadline:
            raise ServerFailed(f"{NAME} on port {place.port} does not answer")
        time.sleep(0.05)


class RabbitmqServer(ServerProcess):
    """One node with nothing in it. Its epmd, which Erlang would leave behind as a daemon, is a child of ours too.

    It takes a few seconds to start: after `launch` see `wait_for`.
    """

    name = NAME

    def __init__(self, found: Program) -> None:
        self.source = found.source
        self._program, copy = reachable(found)
        super().__init__(NAME, copy)
        self._root = self._program.path.parents[2]
        self._names: subprocess.Popen[bytes] | None = None

    @property
    def version(self) -> str:
        """Such as 3.10.8."""
        return next((self._root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")).name.rpartition("-")[2]

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def kill(self) -> None:
        """The node and its epmd."""
        super().kill()
        if self._names is not None:
            kill(self._names)
            self._names = None

    def control(self, *arguments: str) -> str:
        """`rabbitmqctl`: what it says. A call takes about a second."""
        log = self.place / "control.out"
        log.write_bytes(b"")
        done = self._popen(self._root / "usr/lib/rabbitmq/bin/rabbitmqctl", *arguments, log=log)
        if done.wait(PATIENCE) != 0:
            raise ServerFailed(f"{' '.join(arguments)} failed; {end_of(log)}")
        return log.read_text()

    @property
    def _erlang(self) -> Path:
        return self._root / "usr/lib/erlang"

    @property
    def _erts(self) -> Path:
        return next(self._erlang.glob("erts-*"))

    def _arrange(self) -> None:
        names, distribution, place = free_port(), free_port(), self.place
        settings = CONFIGURATION.format(port=self.port, max_bytes=MAX_MESSAGE_BYTES)
        (place / "rabbitmq.conf").write_text(settings)
        (place / "plugins").write_text("[].\n")
        programs = place / "bin"
        programs.mkdir(exist_ok=True)
        erl = programs / "erl"
        erl.write_text(ERL.format(root=self._erlang, erts=self._erts))
        erl.chmod(0o755)
        for name in ("home", "mnesia", "log"):
            folder = place / name
            folder.mkdir(exist_ok=True)
            shutil.chown(folder, place.owner(), place.group())
        mine = {key: value for key, value in os.environ.items() if not key.startswith(("RABBITMQ", "ERL"))}
        self._environment = self._program.environment(mine) | {
            "PATH": f"{programs}:{self._erts / 'bin'}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(place / "home"),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_CONFIG_FILE": str(place / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(place / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(place / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(place / "mnesia"),
            "RABBITMQ_LOG_BASE": str(place / "log"),
            "RABBITMQ_PID_FILE": str(place / "mnesia" / "pid"),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none -start_epmd false "
            "-kernel inet_dist_use_interface {127,0,0,1}",
            # The script then becomes the node instead of waiting for it: the node is our child.
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._names = self._popen(self._erts / "bin" / "epmd")
        return self._popen(self._root / "usr/lib/rabbitmq/bin/rabbitmq-server")

    def _answers(self) -> bool:
        return version_at(self.port) is not None
