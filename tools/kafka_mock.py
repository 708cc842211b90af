"""Hosts librdkafka's mock cluster, which lives inside the wheel confluent-kafka, and does what stdin says.

It speaks Kafka's protocol over TCP and can be told to fail. It keeps everything in memory.
"""

from __future__ import annotations

import ctypes
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

BROKER = 1


def library() -> Path:
    """Raises LookupError with the reason."""
    spec = find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        raise LookupError("the wheel confluent-kafka is not installed")
    found = sorted((Path(spec.origin).parents[1] / "confluent_kafka.libs").glob("librdkafka*.so*"))
    if not found:
        raise LookupError("the wheel confluent-kafka has no librdkafka of its own here")
    return found[0]


class Mock:
    """One broker."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(library()))
        pointer, text = ctypes.c_void_p, ctypes.c_char_p
        said = ctypes.create_string_buffer(512)
        configuration = self._call("rd_kafka_conf_new", pointer)
        handle = self._call("rd_kafka_new", pointer, (ctypes.c_int, 0), (pointer, configuration), (text, said), 512)
        if not handle:
            raise RuntimeError(said.value.decode())
        self._cluster = (pointer, self._call("rd_kafka_mock_cluster_new", pointer, (pointer, handle), 1))
        self._tell("rd_kafka_mock_group_initial_rebalance_delay_ms", 0)
        self.address = self._call("rd_kafka_mock_cluster_bootstraps", text, self._cluster).decode()

    def down(self) -> None:
        self._tell("rd_kafka_mock_broker_set_down", BROKER)

    def up(self) -> None:
        self._tell("rd_kafka_mock_broker_set_up", BROKER)

    def rtt(self, milliseconds: int) -> None:
        self._tell("rd_kafka_mock_broker_set_rtt", BROKER, milliseconds)

    def fail(self, api: int, codes: list[int]) -> None:
        """The next requests of that kind are answered with these errors."""
        array = (ctypes.c_int * len(codes))(*codes)
        size = (ctypes.c_size_t, len(codes))
        name = "rd_kafka_mock_push_request_errors_array"
        self._call(name, ctypes.c_int, self._cluster, (ctypes.c_int16, api), size, (ctypes.c_void_p, array))

    def clear(self, api: int) -> None:
        self._call("rd_kafka_mock_clear_request_errors", None, self._cluster, (ctypes.c_int16, api))

    def _tell(self, name: str, *numbers: int) -> None:
        self._call(name, ctypes.c_int, self._cluster, *((ctypes.c_int32, number) for number in numbers))

    def _call(self, name: str, result: Any, *arguments: Any) -> Any:
        typed = [each if isinstance(each, tuple) else (ctypes.c_size_t, each) for each in arguments]
        function = getattr(self._library, name)
        function.restype, function.argtypes = result, [kind for kind, _ in typed]
        return function(*(value for _, value in typed))


def main() -> None:
    mock = Mock()
    print(mock.address, flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        getattr(mock, name)(*arguments)
        print("done", flush=True)


if __name__ == "__main__":
    main()
