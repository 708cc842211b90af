"""A private RabbitMQ node, with Debian's package unpacked into the project's own folder where it is not installed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tools.debian import Program, program, reachable
from tools.places import free_port, new_folder, new_log
from tools.processes import bound, children_of, kill_all
from tools.servers import PATIENCE, ServerFailed, end_of, launch

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
    """Raises LookupError with the reason, which is looked for once: no network takes its time to say so."""
    if reason := os.environ.get(MISSING):
        raise LookupError(reason)
    try:
        return program(PACKAGE)
    except LookupError as error:
        os.environ[MISSING] = f"{error} (by hand: apt-get install --no-install-recommends {PACKAGE})"
        raise LookupError(os.environ[MISSING]) from error


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


class RabbitmqServer:
    """One node with nothing in it. Its address stays the same over kill and restart.

    Start it from the main thread: it is bound to the thread that starts it and dies with it. Its epmd, which Erlang
    would leave behind as a daemon, is a child of ours too.
    """

    def __init__(self, found: Program) -> None:
        self.source = found.source
        self.port = 0
        self._program, self._copy = reachable(found)
        self._root = self._program.path.parents[2]
        self._process: subprocess.Popen[bytes] | None = None
        self._names: subprocess.Popen[bytes] | None = None
        self._place = new_folder(NAME)
        self.log = new_log(NAME)

    @property
    def version(self) -> str:
        """Such as 3.10.8."""
        return next((self._root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")).name.rpartition("-")[2]

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def start(self, tries: int = 5) -> None:
        """Start and wait until it takes connections; the first start also finds its ports. Harmless when it runs."""
        if self._process is not None:
            return
        known = self.port
        self.launch()
        try:
            self._wait()
        except ServerFailed:  # somebody else may have taken a port in between
            self.kill()
            if known or tries == 1:
                raise
            self.port = 0
            self.start(tries - 1)

    def launch(self) -> None:
        """Start and wait for nothing: it takes a few seconds, see `wait_for`."""
        if not self.port:
            self._arrange()
        self._names = self._popen(self._erts / "bin" / "epmd")
        self._process = self._popen(self._root / "usr/lib/rabbitmq/bin/rabbitmq-server")

    def stop(self) -> None:
        """Stop in order. Harmless when it does not run."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE)
        self.kill()

    def kill(self) -> None:
        """SIGKILL: the node and all it has started, at once."""
        for process in (self._process, self._names):
            if process is not None:
                children = children_of(process.pid)
                process.kill()
                process.wait()
                kill_all(children)
        self._process = self._names = None

    def freeze(self) -> None:
        """It hangs: connections stay open, nothing is answered, until `thaw`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            os.waitpid(self._process.pid, os.WUNTRACED)  # a thread that is busy stops a little later

    def thaw(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stop in order and start again at the same address."""
        self.stop()
        self.start()

    def control(self, *arguments: str) -> str:
        """`rabbitmqctl`: what it says. A call takes about a second."""
        command = [str(self._root / "usr/lib/rabbitmq/bin/rabbitmqctl"), *arguments]
        log = self._place / "control.out"
        log.write_bytes(b"")
        done = launch(command, place=self._place, log=log, env=self._environment)
        if done.wait(PATIENCE) != 0:
            raise ServerFailed(f"{' '.join(arguments)} failed; {end_of(log)}")
        return log.read_text()

    def remove(self) -> None:
        """Stop and delete. The log stays until the next run."""
        self.kill()
        shutil.rmtree(self._place, ignore_errors=True)
        if self._copy:
            shutil.rmtree(self._copy, ignore_errors=True)

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self.remove)
            self.start()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    @property
    def _erlang(self) -> Path:
        return self._root / "usr/lib/erlang"

    @property
    def _erts(self) -> Path:
        return next(self._erlang.glob("erts-*"))

    def _arrange(self) -> None:
        self.port, names, distribution = free_port(), free_port(), free_port()
        place = self._place
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

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while version_at(self.port) is None:
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"{NAME} does not start; {end_of(self.log)}")
            time.sleep(0.02)

    def _popen(self, command: Path) -> subprocess.Popen[bytes]:
        return launch(bound([command], death_signal="KILL"), place=self._place, log=self.log, env=self._environment)
