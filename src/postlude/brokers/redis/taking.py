"""Taking entries so that the order of a key is kept: one member at a time has entries of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from postlude.brokers.redis.link import Command

TAKE = """
local stream, group, me, room, held = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local pending = redis.pcall('XPENDING', stream, group)
if pending.err then return pending end
local others = 0
for _, consumer in ipairs(pending[4] or {}) do
  if consumer[1] ~= me then others = others + tonumber(consumer[2]) end
end
if others == 0 then
  local found = redis.call('XREADGROUP', 'GROUP', group, me, 'COUNT', room, 'STREAMS', stream, '>')
  if found then return {'found', found[1][2]} end
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local fields = {}
    for place = 1, #info, 2 do fields[info[place]] = info[place + 1] end
    if fields['name'] == group then return {'empty', fields['last-delivered-id']} end
  end
end
local claim = {}
for _, entry in ipairs(redis.call('XPENDING', stream, group, '-', '+', pending[1])) do
  if entry[2] ~= me then
    if entry[3] < held then return {'held'} end
    if #claim < room then claim[#claim + 1] = entry[1] end
  end
end
return {'found', redis.call('XCLAIM', stream, group, me, 0, unpack(claim))}
"""
"""In one piece. Nothing new is read while another member has something, or a later entry could be safe with us before
an earlier one. What a member has had for too long is taken over, oldest first, before anything new."""


def take(topic: str, group: str, member: str, room: int, held: int) -> Command:
    return ("EVAL", TAKE, 1, topic, group, member, min(room, 5000), held)


def wait_for_new(after: dict[str, bytes], milliseconds: int) -> Command:
    """Until there is an entry after these. It is nobody's yet."""
    return ("XREAD", "COUNT", 1, "BLOCK", milliseconds, "STREAMS", *after, *after.values())


def found_by(topics: Sequence[str], answers: Sequence[Any]) -> list[list[Any]]:
    """As XREADGROUP would have it."""
    return [
        [topic.encode(), answer[1]]
        for topic, answer in zip(topics, answers, strict=True)
        if answer is not None and answer[0] == b"found"
    ]


def ends_of(topics: Sequence[str], answers: Sequence[Any]) -> dict[str, bytes] | None:
    """How far each stream was read, when all of them have nothing more; None when another member has something."""
    found = {
        topic: answer[1]
        for topic, answer in zip(topics, answers, strict=True)
        if answer is not None and answer[0] == b"empty"
    }
    return found if len(found) == len(topics) else None
