"""A private PgBouncer in transaction mode, in front of a server that runs already."""

from __future__ import annotations

import subprocess
from urllib.parse import unquote, urlsplit

from tools.debian import Program, program_once, reachable
from tools.server_process import ServerProcess

NAME = "pgbouncer"
MISSING = "POSTLUDE_TEST_PGBOUNCER_MISSING"
"""Why there is none; set by `dev test`, so that it is looked for once."""

CONFIGURATION = """\
[databases]
* = host={host} port={port}{login}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = trust
auth_file = users.txt
admin_users = {user}
pool_mode = transaction
default_pool_size = {pool_size}
"""


def available() -> Program:
    """Raises LookupError with the reason."""
    return program_once(NAME, MISSING)


class PgBouncer(ServerProcess):
    """Its clients and servers lose their connections when it ends; it has nothing to lose itself."""

    name = NAME

    def __init__(self, found: Program, upstream: str, *, pool_size: int = 20) -> None:
        self.source = found.source
        self._program, copy = reachable(found)
        super().__init__(NAME, copy)
        self._environment = self._program.environment()
        self._upstream = urlsplit(upstream)
        self._pool_size = pool_size

    @property
    def version(self) -> str:
        """Such as 1.18.0."""
        env = self._environment
        said = subprocess.run([self._program.path, "-V"], env=env, capture_output=True, text=True, check=True)
        return said.stdout.split()[1]

    def url(self, database: str) -> str:
        """The address of a database behind it; `pgbouncer` is its own console."""
        return f"postgresql://{self._user}@127.0.0.1:{self.port}/{database}"

    def stop(self) -> None:
        """By force: in order it may wait for clients that stay."""
        self.kill()

    @property
    def _user(self) -> str:
        return unquote(self._upstream.username or "postgres")

    def _arrange(self) -> None:
        password = unquote(self._upstream.password or "")
        (self.place / "users.txt").write_text(f'"{self._user}" ""\n')
        (self.place / "pgbouncer.ini").write_text(
            CONFIGURATION.format(
                host=self._upstream.hostname,
                port=self._upstream.port or 5432,
                login=f" user={self._user} password={password}" if password else "",
                own_port=self.port,
                user=self._user,
                pool_size=self._pool_size,
            )
        )

    def _spawn(self) -> subprocess.Popen[bytes]:
        return self._popen(self._program.path, "pgbouncer.ini")
