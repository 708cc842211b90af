"""What is known of the installation: the number of lanes, which everything that is appended depends on."""

from __future__ import annotations

from postlude.errors import LanesDiffer, SchemaMissing


class Installed:
    """Learned once from the database, on whatever connection comes first."""

    def __init__(self, expected: int | None) -> None:
        self._expected = expected
        self._lanes: int | None = None

    @property
    def is_known(self) -> bool:
        return self._lanes is not None

    @property
    def lanes(self) -> int:
        if self._lanes is None:
            raise SchemaMissing("the Postlude schema was not looked at yet", hint="Await app.start() first.")
        return self._lanes

    def learn(self, lanes: int | None) -> None:
        """Take in what the database says; settings that say otherwise are refused."""
        if lanes is None:
            raise SchemaMissing("the Postlude schema is not there")
        if self._expected is not None and lanes != self._expected:
            raise LanesDiffer(f"the schema was installed with {lanes} lanes, the settings say {self._expected}")
        self._lanes = lanes

    def forget(self) -> None:
        self._lanes = None
