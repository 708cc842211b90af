"""`postlude doctor`: looks at everything, and says what to do next."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from postlude.app import Postlude
from postlude.brokers.memory import MemoryBroker
from postlude.cli import render
from postlude.cli.checks import Facts, Finding, check_all, check_schema, check_versions
from postlude.cli.erasure_checks import check_erasures, erasures_in
from postlude.cli.loading import open_app, require_database, using
from postlude.cli.options import AppRef, AsJson, Database
from postlude.cli.saga_checks import check_sagas, sagas_in
from postlude.ports.upkeep import TableUse


def doctor(
    *,
    production: Annotated[bool, typer.Option("--production", help="A warning is a failure too.")] = False,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Check connection, schema, lanes, workers, clock, partitions, settings, pool, sagas, erasures, what waits; say what to do."""
    findings, tables = using(open_app(app, database), _examine)
    refused = {"fail", "warn"} if production else {"fail"}
    is_healthy = not any(finding.status in refused for finding in findings)
    if json:
        render.json({"healthy": is_healthy, "checks": findings, "tables": tables})
    else:
        rows = [
            (one.status, one.check, f"{one.message}\n-> {one.hint}" if one.hint else one.message) for one in findings
        ]
        render.table(("status", "check", "found"), rows)
        if tables:
            render.table(("table", "on disk", "rows", "partitions"), [_table_row(one) for one in tables])
        render.say(_summary(findings, is_healthy=is_healthy))
    raise typer.Exit(0 if is_healthy else 1)


def _table_row(one: TableUse) -> tuple[object, ...]:
    return one.name, None if one.bytes is None else render.bytes_text(one.bytes), one.rows, one.partitions or None


async def _examine(app: Postlude) -> tuple[list[Finding], list[TableUse]]:
    await require_database(app)
    await app.store.open()
    asked = datetime.now(UTC)
    server = await app.store.server()
    answered = datetime.now(UTC)
    took = (answered - asked).total_seconds() * 1000
    findings = [Finding("connection", "ok", f"{app.store.dialect} {server['version']} answers in {took:.0f} ms")]
    status = await app.db.status()
    findings.append(check_schema(status, await app.db.verify() if status.version else []))
    findings += check_versions([handler.spec for handler in app.routes.handlers.values()])
    if status.version == 0:
        return findings, []
    tables = await app.store.upkeep.disk_use()
    is_prepared = not any("_pre_" in step for step in status.pending)
    facts = Facts(
        dialect=app.store.dialect,
        server=server,
        settings=app.settings,
        has_memory_broker=_has_memory_broker(app),
        destinations=await app.insight.destinations(),
        workers=await app.insight.workers(),
        unserved=await app.insight.unserved(),
        tables=tables,
        operations=await app.insight.operations(status="running"),
        consumers=await app.insight.consumers() if is_prepared else [],
        asked_at=asked,
        answered_at=answered,
    )
    findings += check_all(facts)
    if is_prepared:
        findings += check_sagas(await sagas_in(app))
        findings += check_erasures(await erasures_in(app, facts.unserved))
    return findings, tables


def _has_memory_broker(app: Postlude) -> bool:
    """By the app's routes, or by the settings when only the database is known."""
    urls = app.settings.broker_urls().values()
    routed = (app.broker(name) for name in app.routes.brokers())
    return any(url.startswith("memory:") for url in urls) or any(isinstance(one, MemoryBroker) for one in routed)


def _summary(findings: list[Finding], *, is_healthy: bool) -> str:
    counts = {status: sum(one.status == status for one in findings) for status in ("ok", "warn", "fail")}
    verdict = (
        "All is well." if is_healthy and not counts["warn"] else "It works." if is_healthy else "There is trouble."
    )
    return f"{verdict} {counts['ok']} ok, {counts['warn']} warn, {counts['fail']} fail."
