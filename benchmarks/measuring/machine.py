"""Where and of what a report was made."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import asyncpg

SETTINGS = (
    "autovacuum", "checkpoint_timeout", "data_checksums", "fsync", "full_page_writes", "jit", "max_wal_size",
    "shared_buffers", "synchronous_commit", "wal_level", "work_mem",
)  # fmt: skip
"""What of the server's settings moves the numbers."""


async def machine(dsn: str) -> dict[str, Any]:
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY($1)", SETTINGS
        )
        server = await connection.fetchval("SHOW server_version")
    finally:
        await connection.close()
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpus": os.cpu_count(),
        "memory_gib": round(pages / 2**30),
        "python": platform.python_version(),
        "database": f"PostgreSQL {str(server).split()[0]}",
        "settings": {str(name): str(value) for name, value in sorted(map(tuple, rows))},
    }


def identity() -> dict[str, str]:
    """Which code, and when."""
    moment = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"version": version("postlude"), "commit": _commit(), "time": moment}


def _commit() -> str:
    """With a mark when the tree differs from it; a tree that was never committed has none."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        answer = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
    except OSError:
        return "unknown"
    return answer.stdout.strip() or "unknown"
