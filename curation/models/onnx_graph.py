# SPDX-License-Identifier: Apache-2.0
"""Reads the inputs, outputs and operators of an ONNX file, and the names of its external files.

A plan needs the names of external files before a model is loaded, and onnxruntime does not report these names. The
format is protobuf, with the fields of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto. Values of tensors are not
read.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from curation.base.errors import InputError
from curation.base.system.os_errors import fault_of

DTYPES = {1: "float32", 6: "int32", 7: "int64", 10: "float16", 11: "float64"}  # of TensorProto.DataType
GRAPH, FUNCTIONS = 7, 25  # fields of ModelProto
NODE, INITIALIZER, INPUT, OUTPUT, SPARSE_INITIALIZER = 1, 5, 11, 12, 15  # of GraphProto
OPERATOR, ATTRIBUTE, NODE_DOMAIN = 4, 5, 7  # of NodeProto
ATTRIBUTE_TENSORS, ATTRIBUTE_GRAPHS, ATTRIBUTE_SPARSE = (5, 10), (6, 11), (22, 23)  # of AttributeProto
TENSOR_NAME, EXTERNAL_DATA = 8, 13  # of TensorProto
FUNCTION_NODE, FUNCTION_DOMAIN = 7, 10  # of FunctionProto
VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5  # wire types of protobuf
MOST_DEPTH = 32  # depth of graphs inside operators of graphs

Span = tuple[int, int]  # first byte, and the byte after the last


class GraphValue(NamedTuple):
    """An input or an output: its dtype ("" for a dtype that is not listed), and its shape, in which 0 is a size that
    may vary."""

    dtype: str
    shape: tuple[int, ...]


class OnnxGraph(NamedTuple):
    """The content of a file.

    inputs     inputs without a value in the file
    operators  (domain, name) of the operators, without those that the file defines
    external   names of the files that hold tensors, relative to the folder of this one
    """

    inputs: dict[str, GraphValue]
    outputs: dict[str, GraphValue]
    operators: frozenset[tuple[str, str]]
    external: tuple[str, ...]


def read_graph(path: Path) -> OnnxGraph:
    """Return the content of an ONNX file. Raises InputError for a file of another form."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return _Reader(data).model()
    except OSError as error:
        raise InputError(f"cannot open {path}: {fault_of(error)}") from None
    except ValueError as error:
        raise InputError(f"{path} is no ONNX file, or a part of one: {error}") from None


class _Reader:
    """Reads the protobuf messages in the bytes of a file. Raises ValueError for bytes that are no messages."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.operators: set[tuple[str, str]] = set()
        self.external: set[str] = set()

    def model(self) -> OnnxGraph:
        graph, functions = None, set()
        for number, value in self.fields((0, len(self.data))):
            if number == GRAPH:
                graph = value
            elif number == FUNCTIONS:
                functions.add(self.function(value))
        if graph is None:
            raise ValueError("it has no graph")
        values: dict[int, dict[str, GraphValue]] = {INPUT: {}, OUTPUT: {}}
        known = self.graph(graph, values, 0)
        return OnnxGraph(
            {name: value for name, value in values[INPUT].items() if name not in known},
            values[OUTPUT],
            frozenset(each for each in self.operators if each[0] not in functions),
            tuple(sorted(self.external)),
        )

    def function(self, span: Span) -> str:
        """Note the operators of a function, and return its domain."""
        domain = ""
        for number, value in self.fields(span):
            if number == FUNCTION_NODE:
                self.node(value, 0)
            elif number == FUNCTION_DOMAIN:
                domain = self.text(value)
        return domain

    def graph(self, span: Span, values: dict[int, dict[str, GraphValue]], depth: int) -> set[str]:
        """Add the inputs and outputs of a graph to `values`, and return the names of its stored tensors."""
        if depth > MOST_DEPTH:
            raise ValueError("its graphs are nested too deeply")
        stored = set()
        for number, value in self.fields(span):
            if number == NODE:
                self.node(value, depth)
            elif number == INITIALIZER:
                stored.add(self.tensor(value))
            elif number == SPARSE_INITIALIZER:
                self.sparse(value)
            elif number in values:
                name, content = self.value(value)
                values[number][name] = content
        return stored

    def node(self, span: Span, depth: int) -> None:
        operator = domain = ""
        for number, value in self.fields(span):
            if number == OPERATOR:
                operator = self.text(value)
            elif number == NODE_DOMAIN:
                domain = self.text(value)
            elif number == ATTRIBUTE:
                for inner, content in self.fields(value):
                    if inner in ATTRIBUTE_TENSORS:
                        self.tensor(content)
                    elif inner in ATTRIBUTE_SPARSE:
                        self.sparse(content)
                    elif inner in ATTRIBUTE_GRAPHS:
                        self.graph(content, {}, depth + 1)
        self.operators.add((domain, operator))

    def sparse(self, span: Span) -> None:
        for number, value in self.fields(span):
            if number in (1, 2):  # values and indices
                self.tensor(value)

    def tensor(self, span: Span) -> str:
        """Note the external file of a tensor, and return the tensor's name."""
        name = ""
        for number, value in self.fields(span):
            if number == TENSOR_NAME:
                name = self.text(value)
            elif number == EXTERNAL_DATA:
                entry = {inner: self.text(content) for inner, content in self.fields(value)}
                if entry.get(1) == "location":
                    self.external.add(entry.get(2, ""))
        return name

    def value(self, span: Span) -> tuple[str, GraphValue]:
        """Return the name, the dtype and the shape of a ValueInfoProto."""
        name, dtype, shape = "", "", []
        for number, value in self.fields(span):
            if number == 1:
                name = self.text(value)
            for tensor in self.inside(value, 1) if number == 2 else ():
                for inner, content in self.fields(tensor):
                    if inner == 1:
                        dtype = DTYPES.get(content[0], "")
                    elif inner == 2:
                        sizes = (dict(self.fields(dim)) for dim in self.inside(content, 1))
                        shape = [size.get(1, (0, 0))[0] if 2 not in size else 0 for size in sizes]
        return name, GraphValue(dtype, tuple(shape))

    def inside(self, span: Span, wanted: int) -> Iterator[Span]:
        return (value for number, value in self.fields(span) if number == wanted)

    def text(self, span: Span) -> str:
        return self.data[slice(*span)].decode()

    def fields(self, span: Span) -> Iterator[tuple[int, Span]]:
        """Yield the number of each field of a message, with the span of its bytes, or (its integer, -1)."""
        offset, end = span
        if end < 0:
            raise ValueError("an integer is in the place of a message")
        while offset < end:
            key, offset = self.varint(offset, end)
            wire = key & 7
            if wire == VARINT:
                value, offset = self.varint(offset, end)
                yield key >> 3, (value, -1)
                continue
            if wire == BYTES:
                size, offset = self.varint(offset, end)
            elif wire in (EIGHT_BYTES, FOUR_BYTES):
                size = 8 if wire == EIGHT_BYTES else 4
            else:
                raise ValueError(f"byte {offset - 1:,} begins no field")
            if size > end - offset:
                raise ValueError(f"a field of {size:,} bytes at byte {offset:,} does not fit")
            yield key >> 3, (offset, offset + size)
            offset += size

    def varint(self, offset: int, end: int) -> tuple[int, int]:
        """Return the integer at a byte, and the byte after it."""
        value = 0
        for shift in range(0, 70, 7):
            if offset >= end:
                raise ValueError(f"it ends within a number at byte {offset:,}")
            byte = self.data[offset]
            value, offset = value | (byte & 127) << shift, offset + 1
            if byte < 128:
                return value, offset
        raise ValueError(f"the number at byte {offset:,} is too long")
