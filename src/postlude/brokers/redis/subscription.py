"""A member of a consumer group."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from postlude.brokers.redis.entries import Place, by_topic, received_of
from postlude.brokers.redis.faults import word_of
from postlude.brokers.redis.link import Command, Link
from postlude.brokers.redis.options import RedisOptions
from postlude.brokers.redis.taking import ends_of, found_by, take, wait_for_new
from postlude.brokers.redis.trimming import groups_of, id_of, trim
from postlude.errors import BrokerUnavailable
from postlude.ports.broker import Received, Start

LEFT = "left"
"""In whose name entries wait that a member gave back."""
LOOK_EVERY = 0.02
"""Seconds between two looks whether another member has acknowledged what it had."""
FORGET_AFTER = 86_400_000
"""Milliseconds; a living member asks every few seconds."""
FORGET = """
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local name, pending, idle = consumer[2], consumer[4], consumer[6]
  if pending == 0 and idle > tonumber(ARGV[2]) then redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], name) end
end
"""
"""Names of members that were killed. In one piece: a consumer takes its pending entries with it."""
_log = logging.getLogger("postlude.redis")


@asynccontextmanager
async def subscribed(
    link: Link, options: RedisOptions, topics: Sequence[str], group: str, *, start: Start, prefetch: int
) -> AsyncIterator[RedisSubscription]:
    member = RedisSubscription(link, options, topics, group, prefetch)
    member.start = "$" if start == "latest" else "0"
    try:
        await member.join()
    except BrokerUnavailable as error:
        _log.warning("%s", error)  # the first receive tries again
    try:
        yield member
    finally:
        await member.leave()


class RedisSubscription:
    """Reads new entries, gives those again that were refused, and takes over what dead members have left."""

    def __init__(self, link: Link, options: RedisOptions, topics: Sequence[str], group: str, prefetch: int) -> None:
        self.start = "0"
        self._link = link
        self._options = options
        self._topics = list(topics)
        self._group = group
        self._prefetch = prefetch
        self._name = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
        self._joined = False
        self._unsure = False
        """An answer was lost: entries may be ours that we have never seen."""
        self._own: set[Place] = set()
        self._again: dict[Place, tuple[float, Received]] = {}
        """Refused, and when they are due; ours all the time."""
        self._cursors: dict[str, bytes] = {}
        self._look_at = 0.0
        self._trim_at = 0.0

    async def join(self) -> None:
        """Make the group where it is new."""
        if self._joined:
            return
        command = ("XGROUP", "CREATE")
        answers = await self._link.ask(
            [(*command, topic, self._group, self.start, "MKSTREAM") for topic in self._topics]
        )
        for answer in answers:
            if isinstance(answer, BaseException) and word_of(answer) != "BUSYGROUP":
                raise self._link.unavailable(answer)
        self._joined = True
        # Where a script is not allowed, the names only stay.
        await self._link.ask([("EVAL", FORGET, 1, topic, self._group, FORGET_AFTER) for topic in self._topics])

    async def receive(self, limit: int, timeout: float) -> list[Received]:
        deadline = _now() + timeout
        while True:
            if found := self._due(limit) or await self._take(limit, deadline):
                return found
            if _now() >= deadline:
                return []

    async def ack(self, received: Sequence[Received]) -> None:
        places = [one.place for one in received]
        self._own.difference_update(places)
        for place in places:
            self._again.pop(place, None)
        commands = [("XACK", topic, self._group, *ids) for topic, ids in by_topic(places)]
        if commands:
            await self._ask(commands)
        await self._trim_when_due()

    async def nack(self, received: Sequence[Received], delay: float) -> None:
        due = _now() + delay
        self._again |= {one.place: (due, one) for one in received if one.place in self._own}

    def position(self, received: Received) -> str | None:
        topic, entry = received.place
        return f"{topic}/{entry.decode()}"

    async def lag(self) -> int | None:
        total = 0
        for topic in self._topics:
            groups = await groups_of(self._link, topic)
            for group in groups:
                if group["name"] == self._group.encode():
                    if group.get("lag") is None:  # before Redis 7, or entries were deleted by hand
                        return None
                    total += group["lag"] + group["pending"]
        return total

    async def leave(self) -> None:
        """Give back what is not acknowledged: others may have it at once. In an outage they get it later."""
        held = self._milliseconds()
        for topic, ids in by_topic(self._own):
            back: Command = ("XCLAIM", topic, self._group, LEFT, 0, *ids, "IDLE", held, "JUSTID")
            (answer,) = await self._link.ask([back])
            if isinstance(answer, BaseException):
                return
        for topic in self._topics:
            (pending,) = await self._link.ask([("XPENDING", topic, self._group, "-", "+", 1, self._name)])
            if isinstance(pending, BaseException):
                return
            if not pending:  # a consumer takes its pending entries with it
                await self._link.ask([("XGROUP", "DELCONSUMER", topic, self._group, self._name)])

    # ------------------------------------------------------------ inside

    def _due(self, limit: int) -> list[Received]:
        now = _now()
        due = [place for place, (when, _) in self._again.items() if when <= now]
        due.sort(key=lambda place: id_of(place[1]))
        return [self._again.pop(place)[1] for place in due[:limit]]

    async def _take(self, limit: int, deadline: float) -> list[Received]:
        until = min([deadline, *(when for when, _ in self._again.values())])
        room = min(limit, self._prefetch - len(self._own))
        if room <= 0:
            await asyncio.sleep(max(0.0, until - _now()))
            return []
        await self.join()
        if self._options.single_active:
            return await self._unseen(room) or await self._next(room, until)
        return await self._unseen(room) or await self._left_behind(room) or await self._new(room, until)

    async def _unseen(self, room: int) -> list[Received]:
        """After a lost answer: what is ours by Redis's account, and was never given to the caller."""
        if not self._unsure:
            return []
        read = ("XREADGROUP", "GROUP", self._group, self._name, "COUNT", len(self._own) + room)
        (answer,) = await self._ask([(*read, "STREAMS", *self._topics, *("0" for _ in self._topics))])
        found = await self._entries(answer)
        self._unsure = len(found) > room
        return self._taken(found[:room])

    async def _next(self, room: int, until: float) -> list[Received]:
        """What comes next in each stream, unless another member has something of it."""
        topics = self._turn(room)
        share = room // len(topics)
        answers = await self._ask(
            [take(topic, self._group, self._name, share, self._milliseconds()) for topic in topics]
        )
        if found := await self._entries(found_by(topics, answers)):
            return self._taken(found)
        wait = until - _now()
        if wait > 0 and (ends := ends_of(topics, answers)) and len(topics) == len(self._topics):
            await self._link.require([wait_for_new(ends, max(1, int(wait * 1000)))], wait)
        elif wait > 0:
            await asyncio.sleep(min(wait, LOOK_EVERY))
        return []

    async def _left_behind(self, room: int) -> list[Received]:
        """What others received long ago and did not acknowledge."""
        if _now() < self._look_at:
            return []
        found: list[Received] = []
        for topic in self._topics:
            cursor = self._cursors.get(topic, b"0-0")
            wanted = max(1, room - len(found))
            claim = ("XAUTOCLAIM", topic, self._group, self._name, self._milliseconds(), cursor, "COUNT", wanted)
            (answer,) = await self._ask([claim])
            if answer is not None:
                self._cursors[topic] = answer[0]
                found += await self._entries([[topic.encode(), answer[1]]])
            if len(found) >= room:
                return self._taken(found)
        if all(cursor == b"0-0" for cursor in self._cursors.values()):
            self._look_at = _now() + self._options.claim_after / 4
        return self._taken(found)

    async def _new(self, room: int, until: float) -> list[Received]:
        topics = self._turn(room)
        wait = max(0.0, min(until, self._look_at) - _now())
        read: tuple[str | int, ...] = ("XREADGROUP", "GROUP", self._group, self._name, "COUNT", room // len(topics))
        if wait > 0:
            read = (*read, "BLOCK", max(1, int(wait * 1000)))
        (answer,) = await self._ask([(*read, "STREAMS", *topics, *(">" for _ in topics))], wait)
        return self._taken(await self._entries(answer))

    def _turn(self, room: int) -> list[str]:
        """COUNT is by stream: each gets its share of the room, and all get their turn."""
        topics = self._topics[:room]
        self._topics = [*self._topics[len(topics) :], *topics]
        return topics

    async def _entries(self, answer: Any) -> list[Received]:
        """What was read and is not in our hands already, oldest first."""
        found = [received_of(stream.decode(), *entry) for stream, entries in answer or () for entry in entries if entry]
        gone = [place for place, received in found if received is None]
        if gone:
            _log.warning("%d entries were removed from Redis before this group had read them", len(gone))
            await self._ask([("XACK", topic, self._group, *ids) for topic, ids in by_topic(gone)])
        return sorted(
            (one for place, one in found if one is not None and place not in self._own),
            key=lambda one: id_of(one.place[1]),
        )

    def _taken(self, found: list[Received]) -> list[Received]:
        self._own.update(one.place for one in found)
        return found

    async def _ask(self, commands: Sequence[Any], wait: float = 0.0) -> list[Any]:
        """None in place of an answer that only says that the group is gone: it is made again, from the beginning."""
        answers = await self._link.ask(commands, wait)
        for place, answer in enumerate(answers):
            if not isinstance(answer, BaseException):
                continue
            if word_of(answer) != "NOGROUP":
                self._unsure = True
                raise self._link.unavailable(answer)
            self._joined, self.start, answers[place] = False, "0", None
        return answers

    async def _trim_when_due(self) -> None:
        every = self._options.trim_every
        if every is None or _now() < self._trim_at:
            return
        self._trim_at = _now() + every
        try:
            for topic in self._topics:
                await trim(self._link, topic, limit=10_000)
        except BrokerUnavailable as error:
            _log.warning("nothing was trimmed: %s", error)  # what was acknowledged is

    def _milliseconds(self) -> int:
        return int(self._options.claim_after * 1000)


def _now() -> float:
    return asyncio.get_running_loop().time()
