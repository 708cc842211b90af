"""Private PostgreSQL servers: direct children on free ports, with their data in memory or in a folder of the project."""

from __future__ import annotations

import os
import signal
import subprocess

from tools.binaries import PostgresBinaries, reachable
from tools.server_process import ServerFailed, ServerProcess

TEST_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "max_prepared_transactions": "50",
    "max_wal_size": "256MB",  # it may stand in memory
    "dynamic_shared_memory_type": "mmap",  # in the data folder: what kill -9 leaves behind goes with it
}
"""No test pulls the plug of the machine; commits stay synchronous, so that kill -9 of the server loses nothing."""


class PostgresServer(ServerProcess):
    """One server with a fresh, empty cluster."""

    death_signal = "QUIT"
    stop_signals = (signal.SIGINT, signal.SIGQUIT)

    def __init__(self, binaries: PostgresBinaries, *, durable: bool = False) -> None:
        self.name = binaries.name
        self.version = binaries.version
        self.source = binaries.source
        self._settings = {} if durable else TEST_SETTINGS
        self._bin, copy = reachable(binaries)
        super().__init__(self.name, copy, on_disk=durable)
        self.data = self.place / "data"
        # A user's PGPORT or PGOPTIONS must not reach in.
        self._environment = {key: value for key, value in os.environ.items() if not key.startswith("PG")}

    @property
    def dsn(self) -> str:
        """The address of its first database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def remove(self) -> None:
        """In order, too: a server that is killed leaves its shared memory behind."""
        self.stop()
        super().remove()

    def _arrange(self) -> None:
        if self.data.exists():
            return
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        if self._popen(self._bin.bin / "initdb", "-D", self.data, *options).wait() != 0:
            raise ServerFailed(self._explain("initdb failed"))

    def _spawn(self) -> subprocess.Popen[bytes]:
        # No Unix socket: its path would have to be short, and everybody connects by TCP.
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            **self._settings,
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return self._popen(self._bin.bin / "postgres", "-D", self.data, *options)

    def _answers(self) -> bool:
        """The server writes its state into the last line of its pid file, as pg_ctl knows too."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def _explain(self, what: str) -> str:
        return super()._explain(f"({self.version}) {what}")
