# SPDX-License-Identifier: Apache-2.0
"""Arguments of a launch as parameters of the kernel, and the memory that they allow the kernel to access.

Arrays that overlap share one region, such as the columns of one table. Regions are far apart, so an access outside all
arrays never falls into another one. An address keeps the alignment that the array would have on a device, where every
allocation starts at a multiple of 256.
"""

from dataclasses import dataclass

import numpy as np
from numpy.lib.array_utils import byte_bounds

REGION_SHIFT = 40
MIDDLE = 1 << 39  # the first address of a region: an access before it falls into no other region
ALIGNMENT = 256


@dataclass
class Region:
    """Host memory of one or more arguments."""

    start: int
    end: int
    misfit: int  # bytes past a multiple of ALIGNMENT
    arguments: list[int]


def misfit_of(array: np.ndarray) -> int:
    """The distance to the start of the memory that the array is a view of, modulo ALIGNMENT."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return (byte_bounds(array)[0] - byte_bounds(owner)[0]) % ALIGNMENT


def regions_of(arguments: tuple) -> list[Region]:
    """The regions of all arrays, those that overlap merged."""
    regions: list[Region] = []
    arrays = [(k, argument) for k, argument in enumerate(arguments) if isinstance(argument, np.ndarray)]
    for k, array in sorted(arrays, key=lambda pair: byte_bounds(pair[1])):
        if not array.flags.aligned:
            raise ValueError(f"argument {k} is not aligned to its items of {array.itemsize} bytes")
        start, end = byte_bounds(array) if array.size else (array.ctypes.data,) * 2
        if array.size and regions and start < regions[-1].end:
            regions[-1].end = max(regions[-1].end, end)
            regions[-1].arguments.append(k)
        else:
            regions.append(Region(start, end, misfit_of(array) if array.size else 0, [k]))
    return regions


def parameters_of(arguments: tuple, regions: list[Region], first_number: int) -> list[int]:
    """The kernel's parameters in Numba's order, as unsigned 64-bit numbers; regions count from `first_number`."""
    region_of = {k: number for number, region in enumerate(regions) for k in region.arguments}
    parameters: list[int] = []
    for k, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            region = regions[region_of[k]]
            address = (region_of[k] + first_number << REGION_SHIFT) + MIDDLE + region.misfit
            address += argument.ctypes.data - region.start
            owner = (0, 0)  # two pointers that only the host uses
            parameters += [*owner, argument.size, argument.itemsize, address, *argument.shape, *argument.strides]
        else:
            parameters.append(int(argument))
    return [number & (1 << 64) - 1 for number in parameters]


def addresses_of(arguments: tuple) -> dict[int, int]:
    """Which parameter is the address of each array, as `parameters_of` orders them."""
    found, number = {}, 0
    for k, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            found[k] = number + 4
            number += 5 + 2 * argument.ndim
        else:
            number += 1
    return found
