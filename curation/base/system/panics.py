# SPDX-License-Identifier: Apache-2.0
"""Panics of libraries in Rust become Python errors, and print nothing on the terminal.

Before a panic reaches Python, the library prints it to descriptor 2, with a backtrace. The text may quote a hostile
file.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from curation.base.system.terminal import printable

PANIC = re.compile(r"\n?thread '[^\n]* panicked at ")
HELD_BYTES = 1 << 20  # maximum text of native code that is held back

_lock = threading.Lock()
_callers = 0
_held: tuple[int, int] | None = None  # descriptors: standard error, and the file in its place


class PanicError(RuntimeError):
    """A library in Rust has panicked. The message is its first line."""


@contextmanager
def without_panics() -> Iterator[None]:
    """Turn panics into PanicError, and do not print their text. Several threads may be in the block at once.

    Native code of any thread may write other text to descriptor 2 before a panic; this text is printed at the end. In
    commands, Python writes to another descriptor (`protect_streams`), so its text is not delayed.
    """
    _enter()
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # each library has a class of its own
            raise
        raise PanicError(str(error).partition("\n")[0]) from None
    finally:
        _leave()


def _enter() -> None:
    global _callers, _held
    with _lock:
        _callers += 1
        if _callers == 1 and hasattr(os, "memfd_create"):
            with suppress(OSError):  # descriptor 2 is closed, or there are no descriptors left
                _held = os.dup(2), os.memfd_create("stderr")
                os.dup2(_held[1], 2)


def _leave() -> None:
    global _callers, _held
    with _lock:
        _callers -= 1
        if _callers or _held is None:
            return
        (error, file), _held = _held, None
        os.dup2(error, 2)
        text = os.pread(file, HELD_BYTES, 0).decode(errors="replace")
        os.close(error)
        os.close(file)
    panic = PANIC.search(text)
    with suppress(OSError):  # standard error is closed or full
        os.write(2, printable(text[: panic.start()] if panic else text).encode(errors="backslashreplace"))
