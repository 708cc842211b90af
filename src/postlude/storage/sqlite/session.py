"""Named statements on a connection, at one moment of the database's clock."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from postlude.core.statement import Row, Statement


class Session:
    """A connection as work in the store thread sees it."""

    def __init__(self, connection: sqlite3.Connection, statements: Mapping[str, Statement], now: float) -> None:
        self.connection = connection
        self.now = now
        self._statements = statements

    def fetch(self, name: str, /, **values: Any) -> list[Row]:
        """Run one named statement; `:now` is given."""
        return self._execute(name, values).fetchall()

    def mappings(self, name: str, /, **values: Any) -> list[dict[str, Any]]:
        """The same, each row by its column names."""
        cursor = self._execute(name, values)
        columns = [column[0] for column in cursor.description]
        return [dict(zip(columns, row, strict=True)) for row in cursor]

    def _execute(self, name: str, values: dict[str, Any]) -> sqlite3.Cursor:
        return self.connection.execute(self._statements[name].sql, {"now": self.now, **values})
