"""Finding the app a command works on: the user's own by reference, or a plain one on a database."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from postlude.app import Postlude
from postlude.errors import ConfigurationError, DatabaseUnavailable, PostludeError, SchemaMissing
from postlude.secrecy import shown_url
from postlude.settings import Settings

T = TypeVar("T")
DEFAULT_NAME = "app"
REFERENCE = "Name it as module:attribute, such as shop:app, from the directory where `import shop` works."


def load_app(reference: str) -> Postlude:
    """The app that `module:attribute` names; the attribute is `app` unless said."""
    name, _, attribute = reference.partition(":")
    attribute = attribute or DEFAULT_NAME
    if not all(part.isidentifier() for part in (*name.split("."), *attribute.split("."))):
        raise ConfigurationError(f"{reference!r} is not a reference to an app", hint=REFERENCE)
    found: object = _module(name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(f"the module {name} has no {attribute!r}", hint=_apps_in(found) or REFERENCE)
        found = getattr(found, part)
    if not isinstance(found, Postlude):
        raise ConfigurationError(
            f"{name}:{attribute} is a {type(found).__name__}, not a Postlude app",
            hint=_apps_in(sys.modules[name]) or REFERENCE,
        )
    return found


def open_app(reference: str | None, database: str | None) -> Postlude:
    """The user's app, or one that knows nothing but its database. Nothing is connected yet."""
    if reference is not None:
        app = load_app(reference)
        if database is not None:
            app.default = _name_of(database, app)
        return app
    settings = Settings.load(database=database)
    if not settings.database:
        raise ConfigurationError(
            "no database is given",
            hint="Give --database URL or --app module:attribute; or POSTLUDE_DATABASE, or database in postlude.toml.",
        )
    return Postlude(settings.database, settings=settings)


def _name_of(database: str, app: Postlude) -> str:
    """With an app, a database is one of its own, by name."""
    if database not in app.databases:
        raise ConfigurationError(
            f"the app has no database named {shown_url(database)!r}",
            hint=f"It has: {', '.join(app.databases)}. A URL is for commands without --app.",
        )
    return database


def using(app: Postlude, work: Callable[[Postlude], Awaitable[T]]) -> T:
    """Run work on the app in an event loop of its own, and close the app whatever happens."""

    async def within() -> T:
        try:
            return await work(app)
        finally:
            await app.close()

    return asyncio.run(within())


def using_schema(app: Postlude, work: Callable[[Postlude], Awaitable[T]]) -> T:
    """The same for work that reads or changes what is there."""

    async def within(opened: Postlude) -> T:
        await require_schema(opened)
        return await work(opened)

    return using(app, within)


def missing_file(app: Postlude) -> str | None:
    """The path of an SQLite file that is not there: opening it would make it, and looking must not."""
    database = getattr(app.store, "database", None)
    path = getattr(database, "path", None)
    return path if isinstance(path, str) and not Path(path).exists() else None


async def require_database(app: Postlude) -> None:
    """For commands that only look."""
    if (path := missing_file(app)) is not None:
        raise DatabaseUnavailable(f"there is no file {path}", hint="`postlude db upgrade` makes it.")


async def require_schema(app: Postlude) -> None:
    """For commands that read or change what is there. It is never made on the way."""
    await require_database(app)
    if (await app.db.status()).version == 0:
        raise SchemaMissing("the Postlude schema is not there")


def _module(name: str) -> ModuleType:
    # As for `python -m`: a console script does not see the directory the user stands in.
    if os.getcwd() not in sys.path:  # noqa: PTH109 - entries of sys.path are strings
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        return importlib.import_module(name)
    except PostludeError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigurationError(f"there is no module {name!r}", hint=REFERENCE) from error
        raise ConfigurationError(f"{name} imports {error.name}, which is not installed", hint=_raised(error)) from error
    except Exception as error:
        raise ConfigurationError(
            f"{name} cannot be imported: {type(error).__name__}: {error}", hint=_raised(error)
        ) from error


def _raised(error: BaseException) -> str:
    """Where, in the user's own code: the innermost frame that is not the machinery of imports."""
    if isinstance(error, SyntaxError):
        return f"It stands at {error.filename}:{error.lineno}."
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    return f"It was raised at {frames[-1].filename}:{frames[-1].lineno}." if len(frames) > 1 else ""


def _apps_in(module: object) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Postlude)]
    return f"It has: {', '.join(names)}." if names else ""
