"""What the contract tests of resolvers set up: a vendor to break, references, and which scenario needs what."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Literal, TypeVar, get_args
from urllib.parse import quote
from uuid import uuid4

from postlude.core.calls import Correction, Erasure, Schedule, SubjectRef
from postlude.errors import ResolverError

Scenario = TypeVar("Scenario", bound=Callable[..., Any])
Capability = Literal["erase", "rectify", "schedule", "verify"]
Transient = Literal["error", "throttle", "drop", "down", "hang", "lost"]
VendorFault = Literal[Transient, "refuse"]
Ability = Literal["effects", "values", "expire", "malformed", VendorFault]
RECOGNISABLE = 6
"""Characters of an id that does not turn up in an error by chance."""


class Vendor:
    """The other side, as the suite sees and breaks it. Subclass it; what no declared ability needs may stay away."""

    async def given_subject(self) -> SubjectRef:
        """Somebody new who is stored there, with an id that does not turn up anywhere by chance."""
        raise NotImplementedError

    async def missing_subject(self) -> SubjectRef:
        """A well-formed reference to nobody."""
        raise NotImplementedError

    async def malformed_subject(self) -> SubjectRef:
        """Ability "malformed": a reference that the vendor can never understand."""
        raise NotImplementedError

    def corrections(self) -> Sequence[Correction]:
        """What a correction of a given subject looks like; other values each time."""
        return [Correction("email", f"{uuid4().hex}@example.org")]

    async def effects(self) -> Mapping[str, int]:
        """Ability "effects": how many effects there were by idempotency key; those without one under ""."""
        raise NotImplementedError

    async def values(self, ref: SubjectRef) -> Mapping[str, Any]:
        """Ability "values": what is stored there of the subject, by category."""
        raise NotImplementedError

    async def expire(self, ref: SubjectRef) -> None:
        """Ability "expire": what was stored of the subject has expired by now."""
        raise NotImplementedError

    async def fail(self, fault: VendorFault) -> None:
        """From now on, for whatever is asked: "error" is an answer like 500, "throttle" one like 429, "drop" a
        connection that is closed without an answer, "down" one that is refused, "hang" no answer at all, "lost" an
        effect whose answer is an error, "refuse" one that says that it will never work, such as 401."""
        raise NotImplementedError

    async def heal(self) -> None:
        """All is well again. Also called where nothing was broken."""


def needs(*words: Capability | Ability, any_of: Sequence[Ability] = ()) -> Callable[[Scenario], Scenario]:
    """The scenario is only for subclasses that declare these; for others it is not collected."""

    def mark(scenario: Scenario) -> Scenario:
        setattr(scenario, "needs", (frozenset(words), frozenset(any_of)))  # noqa: B010 - functions have none until now
        return scenario

    return mark


class ResolverUnderTest:
    """What every scenario stands on. The subclass gives what `ResolverContract` says."""

    capabilities: ClassVar[frozenset[Capability]]
    abilities: ClassVar[frozenset[Ability]] = frozenset()
    patience: ClassVar[float] = 60.0
    moment: ClassVar[float] = 0.2
    _left_out: ClassVar[dict[str, frozenset[str]]] = {}

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if getattr(cls, "capabilities", None) is None:
            return
        declared: frozenset[str] = cls.capabilities | cls.abilities
        written = {name: _written(cls, name) for name in dir(cls) if name.startswith("test_")}
        missing = {name: _missing(scenario, declared) for name, scenario in written.items()}
        cls._left_out = {name: words for name, words in missing.items() if words}
        for name, scenario in written.items():
            setattr(cls, name, None if missing[name] else scenario)  # pytest passes over what it cannot call

    @classmethod
    def scenarios(cls) -> list[str]:
        """Those that are collected."""
        return sorted(name for name in dir(cls) if name.startswith("test_") and getattr(cls, name) is not None)

    @classmethod
    def left_out(cls) -> dict[str, frozenset[str]]:
        """Those that are not, and what the subclass would have to declare for them."""
        return dict(cls._left_out)

    def transients(self) -> list[Transient]:
        """The faults that pass, as far as this vendor can have them."""
        return [fault for fault in get_args(Transient) if fault in self.abilities]

    def faults(self) -> list[VendorFault]:
        """All that this vendor can have."""
        return [fault for fault in get_args(VendorFault) if fault in self.abilities]

    async def act(self, resolver: Any, ref: SubjectRef, key: str) -> Erasure | Schedule:
        """What a worker does for an erasure: erase, or ask for the horizon where that is all there is."""
        async with asyncio.timeout(self.patience):
            if "erase" in self.capabilities:
                return checked(await resolver.erase_subject(ref, idempotency_key=key), Erasure)
            return checked(await resolver.schedule_erasure(ref, idempotency_key=key), Schedule)

    @asynccontextmanager
    async def broken(self, vendor: Vendor, fault: VendorFault) -> AsyncIterator[None]:
        await vendor.fail(fault)
        try:
            yield
        finally:
            await vendor.heal()

    async def failure(self, calling: Any, fault: VendorFault | None = None) -> Exception:
        """What the call raises. A call that hangs is given up after a moment, as a worker would."""
        limit = self.moment if fault == "hang" else self.patience
        try:
            async with asyncio.timeout(limit):
                result = await calling
        except Exception as error:  # noqa: BLE001 - whatever it is, the scenario looks at it
            return error
        raise AssertionError(f"it returned {type(result).__name__} where it could not succeed")


Answer = TypeVar("Answer", Erasure, Schedule)


def checked(result: object, kind: type[Answer]) -> Answer:
    assert isinstance(result, kind), f"it returned {type(result).__name__} instead of {kind.__name__}"
    return result


def is_gone(result: Erasure | Schedule) -> bool:
    return result.already_absent


def fresh_key() -> str:
    """As a worker makes them: one for each call, the same for each of its attempts."""
    return str(uuid4())


def assert_transient(error: Exception) -> None:
    assert not isinstance(error, ResolverError), "a fault that passes was raised as ResolverError: the call is lost"


def assert_discreet(error: BaseException, *private: object) -> None:
    """Nothing that the error or what it came from says has any of these values in it."""
    said = "\n".join(_said(error))
    is_named = any(value in said or quote(value, safe="") in said for value in _texts(private))
    # Not which value: what the suite says must not name it either.
    assert is_named is False, f"{type(error).__name__}, or an error that it came from, names the subject or its data"


def _said(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield from (str(error), repr(error), repr(error.args), *getattr(error, "__notes__", ()))
        for inner in getattr(error, "exceptions", ()):
            yield from _said(inner)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _texts(value: object) -> Iterator[str]:
    """The strings and numbers inside, if they are long enough to be recognised."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from _texts(one)
    elif value is not None and len(str(value)) >= RECOGNISABLE:
        yield str(value)


def _written(contract: type, name: str) -> Any:
    """The scenario, even if a class in between has left it out."""
    return next((found for one in contract.__mro__ if (found := vars(one).get(name)) is not None), None)


def _missing(scenario: Any, declared: frozenset[str]) -> frozenset[str]:
    all_of, any_of = getattr(scenario, "needs", (frozenset(), frozenset()))
    return frozenset(all_of - declared) | (frozenset() if not any_of or any_of & declared else any_of)
