"""`dev test`, and what else needs servers around it: benchmarks, and servers for their own sake."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from tools import kafka, pgbouncer, rabbitmq, redis
from tools.binaries import PostgresBinaries, available_postgres, postgres
from tools.environment import ROOT, say
from tools.processes import adopt_orphans, end_on_signals, end_orphans, run, shielded
from tools.servers import PostgresServer

TESTS = ROOT / "tests"
WITHOUT_SERVERS = frozenset({"unit", "architecture"})
OWN = "POSTLUDE_TEST_POSTGRES"
"""The user's own server, used instead of all of ours."""

BENCH = "POSTLUDE_BENCH_POSTGRES"


def test(arguments: Sequence[str]) -> int:
    """Run the tests of some tiers, with every server they need around them."""
    parser = argparse.ArgumentParser(
        prog="dev test",
        usage="dev test [--tier NAME[,NAME...]] [pytest options]",
        epilog=f"tiers: {', '.join(tiers())}",
    )
    parser.add_argument("--tier", help="folders below tests/, separated by commas (default: all)")
    options, rest = parser.parse_known_args(arguments)
    chosen = options.tier.split(",") if options.tier else tiers()
    if unknown := set(chosen) - set(tiers()):
        parser.error(f"no such tier: {', '.join(sorted(unknown))} (there are {', '.join(tiers())})")
    return run_pytest(chosen, rest)


def tiers() -> list[str]:
    """The tiers there are: one folder of tests each."""
    return sorted({file.parent.name for file in TESTS.glob("*/test_*.py")})


def run_pytest(chosen: Sequence[str], extra: Sequence[str] = (), *, majors: Sequence[int] | None = None) -> int:
    """Run pytest over tiers, or over the paths among the extra arguments; on all versions of PostgreSQL, or on some."""
    paths = [argument for argument in extra if argument.startswith("tests/")]
    targets = [] if paths else [str(TESTS / tier) for tier in chosen]
    concerned = {path.split("/")[1] for path in paths} or set(chosen)
    alone = any(argument.startswith(("-n", "--numprocesses", "--pdb")) for argument in extra)
    workers = [] if alone else ["-n", "2"]
    # Tests start hundreds of interpreters: each would compile all that it imports once more.
    own = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    with test_servers(majors) if concerned - WITHOUT_SERVERS else _tidy({}) as env:
        command = [sys.executable, "-m", "pytest", *workers, *targets, *extra]
        return run(command, env={**own, **env}, stop_signal=signal.SIGINT)


def bench(arguments: Sequence[str]) -> int:
    """Run one benchmark against a private server with durable settings."""
    scripts = {path.stem: path for path in sorted((ROOT / "benchmarks").glob("[a-z]*.py"))}
    if not arguments or arguments[0] not in scripts:
        say(f"usage: dev bench NAME [--json] [--strict]; there are: {', '.join(scripts) or 'none yet'}")
        return 2
    command = [sys.executable, str(scripts[arguments[0]]), *arguments[1:]]
    if arguments[0] == "broker":
        with suppress(LookupError):  # it says so itself, if it needs Kafka
            kafka.fetch()
    if BENCH in os.environ:
        return run(command)
    with _servers([postgres(16)], durable=True) as (server,):
        return run(command, env={**os.environ, BENCH: server.dsn})


def services(arguments: Sequence[str]) -> int:
    """Keep all servers up in the foreground until interrupted."""
    argparse.ArgumentParser(
        prog="dev services", description="The test servers in the foreground, until Ctrl-C; prints how to reach them."
    ).parse_args(arguments)
    with test_servers(None) as env:
        for key, value in env.items():
            print(f"export {key}={value!r}", flush=True)
        say("servers are up; Ctrl-C stops them")
        with suppress(KeyboardInterrupt):
            signal.pause()
    return 0


@contextmanager
def test_servers(majors: Sequence[int] | None) -> Iterator[dict[str, str]]:
    """The environment that tells tests/conftest.py where the servers are, and why some are not."""
    if OWN in os.environ:
        say(f"using the server of {OWN}")
        with _tidy({OWN: os.environ[OWN]}) as env, _rabbitmq() as more:
            yield env | more
        return
    found, missing = available_postgres()
    if majors is not None:
        found = [each for each in found if each.major in majors]
        missing = [each for each in missing if each.major in majors]
    for each in missing:
        say(f"{each.name} is missing: {each.reason}")
    env = {f"{OWN}_{each.major}_MISSING": each.reason for each in missing} | _fetched()
    if majors is not None:
        env[f"{OWN}_MAJORS"] = " ".join(map(str, majors))
    with _servers(found) as servers, _rabbitmq() as more:
        yield env | more | {f"{OWN}_{server.name.partition('-')[2]}": server.dsn for server in servers}


@contextmanager
def _rabbitmq() -> Iterator[dict[str, str]]:
    """One node for the whole run. Nobody waits for it but the tests that need it."""
    if rabbitmq.OWN in os.environ:
        say(f"using the server of {rabbitmq.OWN}")
        yield {}
        return
    try:
        found = rabbitmq.available()
    except LookupError as error:
        say(f"{rabbitmq.NAME} is missing: {error}")
        yield {rabbitmq.MISSING: str(error)}
        return
    server = rabbitmq.RabbitmqServer(found)
    try:
        server.launch()
        say(f"rabbitmq {server.version} from {server.source} on port {server.port}")
        yield {rabbitmq.SHARED: server.url}
    finally:
        with shielded():
            server.remove()


def _fetched() -> dict[str, str]:
    """Have at hand what single tests start for themselves: a download is no part of a test."""
    missing: dict[str, str] = {}
    for server in (pgbouncer, redis):
        if server is redis and redis.OWN in os.environ:
            continue
        try:
            server.available()
        except LookupError as error:
            say(f"{server.NAME} is missing: {error}")
            missing[server.MISSING] = str(error)
    if kafka.OWN not in os.environ:
        try:
            kafka.fetch()
        except LookupError as error:
            say(f"Apache Kafka is missing, its tests run on {kafka.KafkaMock.name}: {error}")
    return missing


@contextmanager
def _servers(wanted: Sequence[PostgresBinaries], *, durable: bool = False) -> Iterator[list[PostgresServer]]:
    servers: list[PostgresServer] = []
    with _tidy({}):
        try:
            for binaries in wanted:
                server = PostgresServer(binaries, durable=durable)
                servers.append(server)
                server.start()
                say(f"{server.name} {server.version} from {server.source} on port {server.port}")
            yield servers
        finally:
            with shielded():
                for server in servers:
                    server.remove()


@contextmanager
def _tidy(env: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Whatever happens inside, no process is left when it is over."""
    end_on_signals()
    adopt_orphans()
    try:
        yield dict(env)
    finally:
        for process in end_orphans():
            say(f"a process was left behind and has been killed: {process}")
