"""Logging of the worker process. The library itself never configures logging."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import msgspec

from postlude.secrecy import without_secrets
from postlude.settings import LogSettings

CLIENTS = ("httpx", "httpcore", "urllib3", "aiohttp.client", "botocore", "stripe")
"""They write the URLs that they ask into the log, httpx at every call: the ids of data subjects at vendors."""
PLAIN = "%(asctime)s %(levelname)-7s [%(process)d] %(name)s: %(message)s"


class PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class JsonFormatter(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": record.process,
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
        }
        if record.exc_info:
            line["exception"] = without_secrets(self.formatException(record.exc_info))
        return msgspec.json.encode(line).decode()


def configure(options: LogSettings) -> None:
    """Log to stderr as the settings say, unless the user's own module has set logging up already."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if options.format == "json" else PlainFormatter(PLAIN))
    root.addHandler(handler)
    root.setLevel(options.level.upper())
    for client in map(logging.getLogger, CLIENTS):
        if client.level == logging.NOTSET:  # else the app has decided for itself
            client.setLevel(logging.ERROR)


def silence() -> None:
    """For commands that say themselves what happens."""
    logger = logging.getLogger("postlude")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
