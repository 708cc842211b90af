"""Where a command writes what it exports."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from postlude.errors import ConfigurationError


class Lines:
    """One a line."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, one: bytes) -> None:
        self._file.write(one + b"\n")

    def end(self, written: int) -> None:
        """Nothing follows."""


class Document:
    """One JSON object with all of them. It is begun with the first, so that an error before it stands alone."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._before = b'{"%s":[' % name.encode()

    def write(self, one: bytes) -> None:
        self._file.write(self._before + one)
        self._before = b","

    def end(self, written: int) -> None:
        begun = b"" if written else self._before
        self._file.write(begun + b'],"exported":%d}\n' % written)


@contextmanager
def target_file(output: Path | None) -> Iterator[BinaryIO]:
    """Stdout, or a file that appears under its name only when it is complete."""
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        file = part.open("xb")
    except OSError as error:
        raise ConfigurationError(
            f"{output} cannot be written: {error.strerror}", hint="Choose another --output."
        ) from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
