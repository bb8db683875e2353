# SPDX-License-Identifier: Apache-2.0
"""CuPy's operations and the host's waits for results, counted on the stand-ins.

An operation is a call that launches at least one kernel or fills memory: arithmetic, selection, sort, creation of an
array that is not empty, a copy from the host. Views and `empty` are none. The host waits for a result when it needs a
number (`int`, `bool`), a host array, or the size of a selection.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cpu_fallback.buffers
from tests.gpu import stand_ins

ENGINE_FOLDERS = "/gpu_pipeline/", "/curation/kernels/"
CREATORS = {"arange", "array", "asarray", "full", "ones", "zeros"}
SELECTIONS = ("argwhere", "flatnonzero", "nonzero", "unique")  # CuPy asks the device how many they select
METHODS = (
    "all", "any", "argmax", "argsort", "copy", "cumsum", "max", "min", "nonzero", "repeat", "searchsorted", "sort",
    "sum", "take",
)  # fmt: skip
VIEWS = ("broadcast_to", "expand_dims", "may_share_memory", "ravel", "reshape", "shape", "size", "squeeze", "split")


class Tally:
    """Operations and waits of the engine since the last reset; those of pandas and of tests do not count."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.operations = self.waits = 0

    def add(self, operations: int, waits: int = 0) -> None:
        frame = sys._getframe(1)
        while frame.f_code.co_filename == __file__:
            frame = frame.f_back
        if any(folder in frame.f_code.co_filename for folder in ENGINE_FOLDERS):
            self.operations += operations
            self.waits += waits


TALLY = Tally()


def on_host(value: Any) -> Any:
    """The same without DeviceArray, in tuples and lists too."""
    if isinstance(value, DeviceArray):
        return value.view(np.ndarray)
    return type(value)(map(on_host, value)) if type(value) in (tuple, list) else value


def as_device(value: Any) -> Any:
    """Arrays and numbers of NumPy as arrays of a device, which also has arrays of no dimension."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value).view(DeviceArray)
    return tuple(map(as_device, value)) if type(value) is tuple else value


def waiting(name: str) -> Callable:
    def run(self: "DeviceArray", *arguments: Any) -> Any:
        TALLY.add(0, 1)
        return getattr(on_host(self), name)(*arguments)

    return run


def operation(name: str) -> Callable:
    def run(self: "DeviceArray", *arguments: Any, **settings: Any) -> Any:
        TALLY.add(1, name in SELECTIONS)
        return as_device(getattr(on_host(self), name)(*map(on_host, arguments), **settings))

    return run


class DeviceArray(np.ndarray):
    """An array that tallies what CuPy would do."""

    __int__, __index__, __bool__, __float__, item, tolist = (
        waiting(name) for name in ("__int__", "__index__", "__bool__", "__float__", "item", "tolist")
    )

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = (), **settings: Any) -> Any:
        TALLY.add(1)
        if out:
            settings["out"] = tuple(map(on_host, out))
        found = getattr(ufunc, method)(*map(on_host, inputs), **settings)
        return out[0] if out else as_device(found)

    def __array_function__(self, function: Callable, types: Any, arguments: Any, settings: Any) -> Any:
        TALLY.add(function.__name__ not in VIEWS, function.__name__ in SELECTIONS)
        return as_device(function(*map(on_host, arguments), **{name: on_host(each) for name, each in settings.items()}))

    def __getitem__(self, place: Any) -> Any:
        arrays = [each for each in (place if isinstance(place, tuple) else (place,)) if isinstance(each, np.ndarray)]
        TALLY.add(bool(arrays), any(each.dtype == np.bool_ for each in arrays))
        if isinstance(place, int | np.integer):  # a view
            return np.ndarray.__getitem__(self, slice(place, place + 1 or None)).reshape(self.shape[1:])
        return as_device(on_host(self)[on_host(place)])

    def __setitem__(self, place: Any, value: Any) -> None:
        TALLY.add(1)
        on_host(self)[on_host(place)] = on_host(value)

    def astype(self, kind: Any, copy: bool = True, **settings: Any) -> "DeviceArray":
        if not copy and self.dtype == kind:
            return self
        TALLY.add(1)
        return as_device(on_host(self).astype(kind, copy=copy, **settings))


for _name in METHODS:
    setattr(DeviceArray, _name, operation(_name))


def to_host(value: Any, *_: Any, **__: Any) -> np.ndarray:
    TALLY.add(0, isinstance(value, DeviceArray))
    return np.asarray(on_host(value))


def copied_up(*parts: np.ndarray) -> Any:
    """An upload is an operation."""
    TALLY.add(1)
    return as_device(np.concatenate(parts))


def copied_down(array: np.ndarray, out: np.ndarray) -> None:
    """A download is a wait."""
    TALLY.add(0, 1)
    out[...] = on_host(array)


def created(function: Callable, operations: int = 1) -> Callable:
    def run(*arguments: Any, **settings: Any) -> Any:
        TALLY.add(operations)
        return as_device(function(*map(on_host, arguments), **settings))

    return run


def tally_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the stand-ins make tallying arrays; before `stand_ins.install`."""
    whole, buffers_of = stand_ins.numpy_as_cupy, cpu_fallback.buffers.buffers_of

    def numpy_as_cupy() -> Any:
        cupy = whole()
        for name in CREATORS & vars(cupy).keys():
            setattr(cupy, name, created(getattr(cupy, name)))
        cupy.asnumpy = to_host
        return cupy

    monkeypatch.setattr(stand_ins, "numpy_as_cupy", numpy_as_cupy)
    monkeypatch.setattr(stand_ins, "rubbish", created(stand_ins.rubbish, 0))
    monkeypatch.setattr(stand_ins, "copied_up", copied_up)
    monkeypatch.setattr(stand_ins, "copied_down", copied_down)
    monkeypatch.setattr(
        cpu_fallback.buffers, "buffers_of",
        lambda text: as_device(buffers_of(text)),
    )  # fmt: skip
