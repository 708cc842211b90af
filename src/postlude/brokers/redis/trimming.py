"""Removing what every group has acknowledged, and nothing else."""

from __future__ import annotations

from typing import Any

from postlude.brokers.redis.link import Link

Id = tuple[int, int]


async def trim(link: Link, topic: str, limit: int) -> int:
    """In between, groups only go on: what was done with at the first look still is at the last. A stream without
    groups is left alone: nobody has read it."""
    groups = await groups_of(link, topic)
    if not groups:
        return 0
    summaries = await link.require([("XPENDING", topic, group["name"]) for group in groups])
    floor = min(_floor(group, summary) for group, summary in zip(groups, summaries, strict=True))
    # Redis removes whole nodes of its own, about a hundred entries: the last ones stay a little longer.
    (removed,) = await link.require([("XTRIM", topic, "MINID", "~", f"{floor[0]}-{floor[1]}", "LIMIT", limit)])
    return int(removed)


async def groups_of(link: Link, topic: str) -> list[dict[str, Any]]:
    (answer,) = await link.ask([("XINFO", "GROUPS", topic)])
    if isinstance(answer, BaseException):
        if "no such key" in str(answer):
            return []
        raise link.unavailable(answer)
    return [dict(zip((name.decode() for name in group[::2]), group[1::2], strict=True)) for group in answer]


def _floor(group: dict[str, Any], summary: list[Any]) -> Id:
    """The lowest id that this group still needs."""
    if summary[0]:
        return id_of(summary[1])
    milliseconds, number = id_of(group["last-delivered-id"])
    return milliseconds, number + 1


def id_of(text: bytes) -> Id:
    milliseconds, _, number = text.partition(b"-")
    return int(milliseconds), int(number)
