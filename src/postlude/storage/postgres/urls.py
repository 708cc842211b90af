"""PostgreSQL URLs as people have them, made such that every driver reads the same in them.

What cannot be read is refused here: the errors of drivers repeat parts of the password.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from postlude.errors import BadUrl
from postlude.secrecy import shown_url

ESCAPING = "postgresql://user:password@host:5432/database; in a password write / as %2F, ? as %3F, # as %23, @ as %40."
_LONE_PERCENT = re.compile("%(?![0-9a-fA-F]{2})")
_HOST = re.compile(r"(?:\[[0-9a-fA-F:.%]+\]|[^\[\]:,@]*)(?::(\d{1,5}))?")


def plain_url(url: str) -> str:
    """Without the driver that others put into it, and with escapes where people forget them."""
    _, _, rest = url.partition("://")
    place = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, at, hosts = place.rpartition("@")
    behind = rest[len(place) :]
    path, _, query = behind.partition("#")[0].partition("?")
    if not all(map(_is_host, hosts.split(","))) or "@" in path:
        raise BadUrl(f"host or port in {shown_url(url)} cannot be read", hint=ESCAPING)
    if "%00" in rest or not _is_query(query) or not _is_split(rest):
        raise BadUrl(f"{shown_url(url)} cannot be read", hint=ESCAPING)
    escaped = f"{user.replace('@', '%40')}{at}{hosts}{behind}".replace(" ", "%20")
    return f"postgresql://{_LONE_PERCENT.sub('%25', escaped)}"


def _is_host(text: str) -> bool:
    found = _HOST.fullmatch(text)
    return found is not None and (found[1] is None or 0 < int(found[1]) < 65_536)


def _is_query(query: str) -> bool:
    return not query or all("=" in part and "@" not in part.partition("=")[0] for part in query.split("&"))


def _is_split(rest: str) -> bool:
    try:
        urlsplit(f"postgresql://{rest}")
    except ValueError:  # its text has the whole of user and password
        return False
    return True
