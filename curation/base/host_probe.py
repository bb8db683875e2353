# SPDX-License-Identifier: Apache-2.0
"""Measures the speed of this machine once, for the choice of the engine by "auto" (`curation.base.speeds`).

A made text is compressed as `documents/` are, copied in memory, and copied to the device and back by the GPU engine.
The fastest of ROUNDS calls counts, so another program's load changes the result little. It is stored in the user's
cache, for this processor and device. All rates of the CPU engine are assumed to grow as the rate of compression does.
"""

from __future__ import annotations

import json
import logging
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curation.base.contract import TEXT, Engine
from curation.base.errors import EngineError
from curation.base.parquet import COMPRESSION
from curation.base.speeds import HostSpeed, cache_folder
from curation.base.system.files import commit, make_folder

VERSION = 1
ROUNDS = 3
TEXT_BYTES = 64 << 20
DOCUMENT_BYTES, WORDS = 1 << 11, 1 << 14
COMPRESSED_SHARE = 4  # a quarter of the text is compressed
# MB per second of one processor of a machine of the kind of HOST_RATES: AMD EPYC, two shared processors (2026-11-29)
REFERENCE_RATE = 273.0

log = logging.getLogger(__name__)


def stored_file() -> Path:
    """Return the path of the stored result."""
    return cache_folder() / "host_speed.json"


def host_speed(engine: Engine, device: str) -> HostSpeed | None:
    """Return the speed of this machine with a device (its name): the stored one, or else a new measurement, which takes
    about two seconds and is stored. None if the device fails meanwhile. `engine`: the engine of the device."""
    found = stored_speed(device)
    if found is None:
        try:
            found = _measured(engine)
        except (EngineError, MemoryError, RuntimeError) as error:
            log.warning("the speed of this machine was not measured: %s", error)
            return None
        _store(_made_on(device) | found._asdict())
    return found


def stored_speed(device: str) -> HostSpeed | None:
    """Return the stored speed of this machine with a device; None if none is stored, or that of another processor."""
    try:
        stored = json.loads(stored_file().read_bytes())
        speed = HostSpeed(*(float(stored[name]) for name in HostSpeed._fields))
        return speed if _made_on(device).items() <= stored.items() and min(speed) > 0 else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _made_on(device: str) -> dict[str, Any]:
    """Return what a stored speed holds for: the version of this module, the processor and the device."""
    processor = platform.machine()
    with suppress(OSError), open("/proc/cpuinfo") as lines:
        processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), processor)
    return {"version": VERSION, "processor": processor, "device": device}


def _store(content: dict[str, Any]) -> None:
    with suppress(OSError):  # a cache that cannot be written: the next run measures again
        make_folder(stored_file().parent)
        with commit(stored_file()) as temporary:
            temporary.write_text(json.dumps(content))


def _measured(engine: Engine) -> HostSpeed:
    log.info("measuring the speed of this machine once, for the choice of the engine")
    data = _made_text()
    codec, part = (
        pa.Codec(COMPRESSION["compression"], COMPRESSION["compression_level"]),
        data[: TEXT_BYTES // COMPRESSED_SHARE],
    )
    compute = _rate(part.size, lambda: codec.compress(part))
    target = np.empty_like(data)
    copy = _rate(data.size, lambda: np.copyto(target, data))
    offsets = np.arange(0, data.size + 1, DOCUMENT_BYTES)
    text = pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))
    table = pa.table({TEXT: text})
    bus = _rate(2 * data.size, lambda: engine.to_arrow(engine.from_arrow(table)), time.perf_counter)
    return HostSpeed(compute / REFERENCE_RATE, copy, bus)


def _made_text() -> np.ndarray:
    """Return TEXT_BYTES of words of 8 bytes, some of them frequent; the same on every machine."""
    random = np.random.default_rng(0)
    words = random.integers(0x61, 0x7B, (WORDS, 8), np.uint8)
    words[:, -1] = 0x20
    return words[(random.random(TEXT_BYTES // 8) ** 4 * WORDS).astype(np.int64)].reshape(-1)


def _rate(size: int, call: Callable[[], Any], clock: Callable[[], float] = time.thread_time) -> float:
    """Return the MB per second of a call that processes `size` bytes, from the fastest of ROUNDS calls."""
    seconds = []
    for _ in range(ROUNDS):
        start = clock()
        call()
        seconds.append(clock() - start)
    return size / 1e6 / max(min(seconds), 1e-9)
