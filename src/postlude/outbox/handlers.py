"""Handlers: functions and objects that want to know of an event, and what they may say in return."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable
from typing import Any, Generic, TypedDict, TypeVar

import msgspec

from postlude.core.event import EventSpec, spec_of
from postlude.core.outcome import Err, Ok
from postlude.core.retry import Retry
from postlude.errors import ConfigurationError, ContractViolation

In = TypeVar("In")
S = TypeVar("S")
F = TypeVar("F")

PREFIX = "handler:"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class EventHandler(Generic[In, S, F]):
    """A handler with services of its own. Subclass it, name the types, give an instance to `app.register`."""

    async def handle(self, *args: Any, **kwargs: Any) -> Ok[S] | Err[F]:  # noqa: ARG002 - subclasses say what they take
        """Takes (event) or (event, ctx); written so openly that type checkers allow both."""
        raise TypeError(f"{type(self).__name__} does not define handle")


class Returns(msgspec.Struct, frozen=True):
    """What a handler may return: event classes of Ok and Err, nothing, or anything when it does not say."""

    ok: tuple[type, ...] = ()
    err: tuple[type, ...] = ()
    nothing: bool = True
    declared: bool = False

    @property
    def may_fail(self) -> bool:
        """A savepoint is needed only where an Err can come."""
        return bool(self.err) or not self.declared

    def check(self, result: object) -> Ok[Any] | Err[Any] | None:
        """The result, if the handler keeps its word."""
        if result is None:
            if self.nothing:
                return None
            raise ContractViolation("the handler declares Ok or Err and returned nothing")
        if not isinstance(result, (Ok, Err)):
            raise ContractViolation(f"a handler returns Ok, Err or None, not {type(result).__name__}")
        allowed = self.ok if isinstance(result, Ok) else self.err
        if self.declared and not isinstance(result.value, allowed):
            raise ContractViolation(
                f"the handler does not declare {type(result).__name__}[{type(result.value).__name__}]"
            )
        if result.value is not None:
            spec_of(result.value)
        return result


class Source(msgspec.Struct, frozen=True):
    """A topic of a broker, as one consumer takes it."""

    consumer: str
    broker: str
    topic: str


class Handler(msgspec.Struct, frozen=True):
    """A registered handler."""

    name: str
    spec: EventSpec
    function: Callable[..., Any]
    takes_context: bool
    is_async: bool
    returns: Returns
    transactional: bool
    retry: Retry | None
    timeout: float
    concurrency: int | None
    source: Source | None = None
    """Where its events come from; None: from what is appended in this database."""

    @property
    def destination(self) -> str:
        return PREFIX + self.name


class HandlerOptions(TypedDict, total=False):
    """How a handler is run; what is left out is as in the settings."""

    name: str | None
    transactional: bool
    retry: Retry | None
    timeout: float | None
    concurrency: int | None
    topic: str | None
    broker: str
    consumer: str


def handler_of(function: Callable[..., Any], event_class: type[Any], limit: float, options: HandlerOptions) -> Handler:
    """A handler from a function or a bound method. Its name is what its work waits under: keep it."""
    written = getattr(function, "__qualname__", type(function).__name__).rpartition("<locals>.")[2]
    chosen = options.get("name") or written
    timeout = options.get("timeout") or limit
    concurrency = options.get("concurrency")
    if not _NAME.fullmatch(chosen):
        raise ConfigurationError(
            f"{chosen!r} is not a handler name",
            hint="Give name= with letters, digits, _ . - and at most 128 characters.",
        )
    if timeout <= 0:
        raise ConfigurationError(f"the timeout of {chosen} must be positive, not {timeout}")
    if concurrency is not None and concurrency < 1:
        raise ConfigurationError(f"the concurrency of {chosen} must be at least 1, not {concurrency}")
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(parameters) not in (1, 2):
        raise ConfigurationError(f"{chosen} must take (event) or (event, ctx), not {len(parameters)} parameters")
    return Handler(
        name=chosen,
        spec=spec_of(event_class),
        function=function,
        takes_context=len(parameters) == 2,
        is_async=inspect.iscoroutinefunction(function),
        returns=_returns(function),
        transactional=options.get("transactional", True),
        retry=options.get("retry"),
        timeout=timeout,
        concurrency=concurrency,
        source=_source(chosen, spec_of(event_class), options),
    )


def _source(name: str, spec: EventSpec, options: HandlerOptions) -> Source | None:
    if "consumer" not in options:
        if given := [option for option in ("topic", "broker") if options.get(option) is not None]:
            raise ConfigurationError(
                f"{name} names a {given[0]}, but no consumer",
                hint="Give consumer= too: the name under which this service takes messages. Keep it for ever.",
            )
        return None
    consumer = options["consumer"]
    if not _NAME.fullmatch(consumer or ""):
        raise ConfigurationError(
            f"{consumer!r} is not the name of a consumer",
            hint="Use letters, digits, _ . - and at most 128 characters, such as 'billing'.",
        )
    return Source(consumer, options.get("broker", "default"), options.get("topic") or spec.topic)


def event_class_of(instance: Any) -> type[Any]:
    """The In of an EventHandler, from its type arguments or its annotation; where both speak they must agree."""
    hints = _hints(instance.handle)
    annotated = [hint for name, hint in hints.items() if name not in ("return", "ctx") and isinstance(hint, type)]
    bases = (base for cls in type(instance).__mro__ for base in getattr(cls, "__orig_bases__", ()))
    arguments = [typing.get_args(base)[0] for base in bases if typing.get_origin(base) is EventHandler]
    found = [cls for cls in (*arguments[:1], *annotated[:1]) if isinstance(cls, type)]
    if not found:
        raise ConfigurationError(
            f"it is not clear which event {type(instance).__name__} handles",
            hint="Subclass EventHandler[In, Success, Failure] or annotate the event of handle().",
        )
    if found[0] is not found[-1]:
        raise ConfigurationError(
            f"{type(instance).__name__} is a handler of {found[0].__name__}, but handle() takes {found[-1].__name__}"
        )
    return found[0]


def _returns(function: Callable[..., Any]) -> Returns:
    hints = _hints(function)
    if "return" not in hints:
        return Returns()
    declared = hints["return"]
    parts = typing.get_args(declared) if _is_union(declared) else (declared,)
    ok: list[type] = []
    err: list[type] = []
    nothing = False
    for part in parts:
        origin = typing.get_origin(part) or part
        if part in (None, types.NoneType):
            nothing = True
        elif origin in (Ok, Err):
            (ok if origin is Ok else err).extend(_classes(typing.get_args(part)))
        else:
            return Returns()
    return Returns(tuple(ok), tuple(err), nothing, declared=True)


def _classes(arguments: tuple[Any, ...]) -> list[type]:
    found: list[type] = []
    for argument in arguments or (object,):
        for part in typing.get_args(argument) if _is_union(argument) else (argument,):
            is_class = isinstance(part, type) and part is not Any
            found.append(part if is_class else types.NoneType if part is None else object)
    return found


def _is_union(hint: object) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):
        # Annotations that cannot be resolved here (local classes, TYPE_CHECKING imports) declare nothing.
        return {}
