# SPDX-License-Identifier: Apache-2.0
"""The device code that finds documents in JSON Lines accepts nothing that the CPU's parser refuses, and gives the same
texts and ids, in every order of threads."""

import json
import random

import numpy as np
import pytest

from curation.kernels import jsonl
from tests.ptx import workload
from tests.ptx.engine import install_engine
from tests.ptx.test_kernels import ORDERS, SOME_SEEDS
from tests.reading.test_jsonl import BAD, GOOD

LONGEST_THREAD = 100_000  # instructions
NO_LIMIT = 1 << 31


def string(data, offsets, line):
    return data[offsets[line] : offsets[line + 1]].tobytes()


def assert_equal_lines(raw, max_bytes=NO_LIMIT):
    """Return what the device found of each line, and what the CPU did."""
    data = np.frombuffer(raw, np.uint8)
    found = workload.find_lines(raw, max_bytes)
    starts, status, texts, text_offsets, ids, id_offsets, id_valid = workload.parse_lines(raw)
    np.testing.assert_array_equal(found.starts, starts)
    for line in range(len(status)):
        shown = data[starts[line] : starts[line + 1]].tobytes()[:300]
        if found.status[line] != jsonl.UNUSUAL:
            assert found.status[line] == status[line], shown
        if found.status[line] == jsonl.PLAIN:
            assert string(found.texts, found.text_offsets, line) == string(texts, text_offsets, line), shown
            assert string(found.ids, found.id_offsets, line) == string(ids, id_offsets, line), shown
            assert found.id_valid[line] == id_valid[line], shown
    return found.status, status


LETTERS = [
    b'"', b"\\", b"\\\\", b'\\"', b"/", b"\\/", b"\\n", b"\\b\\f\\r\\t", b"\n", b"\t", b"\r", b"\x00", b"\x7f",
    "é".encode(), "漢".encode(), "😀".encode(), b"\xff", b"\xc3", b"\xed\xa0\x80", b"a", b"b" * 9, b"c" * 33,
    b"\\u0041", b"\\u00e9", b"\\uFFFF", b"\\ud83d", b"\\uDE42", b"\\ud83d\\ude42", b"\\u00", b"\\x", b"{", b"}", b",",
    b":", b" ", b"[", b"]", b"1", b"null", b'{"text": "', b'"}\n', b'"id": "',
]  # fmt: skip


def adversarial_lines(count, seed):
    """Documents with strings of any letters, some of them valid, and lines of letters in any order."""
    chance = random.Random(seed)

    def letters(most):
        return b"".join(chance.choices(LETTERS, k=chance.randrange(most)))

    def valid():
        pieces = '"', "\\", "é", "\n", "😀", "漢", "b", "word ", "c" * 30
        text = "".join(chance.choices(pieces, k=chance.randrange(30)))
        return json.dumps(text, ensure_ascii=chance.random() < 0.5)[1:-1].encode()

    for _ in range(count):
        body = valid() if chance.random() < 0.7 else letters(8)
        yield chance.choice([
            b'{"text": "%s", "id": "%s"}\n' % (body, body[: chance.randrange(20)]),
            b'{"a": [1, {"b": "%s"}], "text":"%s"}\r\n' % (body, body),
            b'\t{"id":%d,"%s":{},"text" : "%s"}\n' % (chance.randrange(99), body[:5], body),
            b'{"text":"%s","text":"a"}\n' % body,
            letters(20),
        ])  # fmt: skip


def borders():
    """Escapes, quotes and characters of several bytes at every place of a word."""
    for size in range(67):
        for letter in (rb"\"", rb"\\", rb"\u00e9", rb"\ud83d\ude42", "漢😀".encode(), rb"\\\"", rb"\ude42", b"\x1f"):
            yield b'{"text":"%s%s%s"}\n' % (b"x" * size, letter, b"y" * (size % 5))


# Backslashes in a row. A thread looks through 512 of them, from the start of a word.
RUNS = [*range(1, 70), 510, 511, 512, 513, 543, 544, 545, 546, 700, 701, 5000, 5001]


@pytest.mark.slow("JSON Lines parsed on the device do not depend on the order of threads")
@pytest.mark.parametrize(("seed", "capability"), ORDERS, ids=str)
def test_lines_in_every_order_of_threads(monkeypatch, seed, capability):
    install_engine(monkeypatch, seed, capability)
    found, expected = assert_equal_lines(b"\n".join([*GOOD, *BAD]))
    assert_equal_lines(b"\r\n".join([*BAD, b"", b" \t", *GOOD, b"", b""]))
    assert (found == jsonl.PLAIN).sum() == (expected == jsonl.PLAIN).sum() > 15
    found, expected = assert_equal_lines(b"".join(adversarial_lines(600, seed)))
    assert (found == jsonl.PLAIN).sum() == (expected == jsonl.PLAIN).sum() > 150


@pytest.mark.parametrize("seed", SOME_SEEDS)
def test_borders_and_runs(monkeypatch, seed):
    install_engine(monkeypatch, seed)
    found, expected = assert_equal_lines(b"".join(borders()))
    np.testing.assert_array_equal(found, expected)
    found, expected = assert_equal_lines(b"".join(b'{"text":"%s"}\n{"text":"b"}\n' % (b"\\" * size) for size in RUNS))
    assert found[1::2].tolist() == [jsonl.PLAIN] * len(RUNS)
    same = [size for size, *kinds in zip(RUNS, found[::2], expected[::2], strict=True) if kinds[0] == kinds[1]]
    assert {*same} >= {size for size in RUNS if size < 512 or size % 2} and not {*same} & {544, 546, 700, 5000}


BLOCKS = [
    b"\n", b"\n\n", b" ", b"{", b'{"text":""}', b'"', b'{"text":"a"}\n{"text":"b',
    b'{"text":"%s"}"\n' % (b"a" * 19),  # 32 bytes, and a string that is not closed
    rb'{"a":"\u00e9","text":"b"}', rb'{"id":"\u00e9","text":"a"}', rb'{"id":"\"","text":"\n"}',
]  # fmt: skip
LIMITED = b'{"text":"a"}\n{"text":"ab"}\r\n{"text":"ab"}\n', 13  # lines, and the bytes that one may have


@pytest.mark.parametrize("raw", BLOCKS)
def test_short_blocks(monkeypatch, raw):
    install_engine(monkeypatch, 1)
    assert_equal_lines(raw)


def test_lines_above_the_limit_are_for_the_host(monkeypatch):
    install_engine(monkeypatch, 1)
    found, expected = assert_equal_lines(*LIMITED)
    assert found.tolist() == [jsonl.PLAIN, jsonl.UNUSUAL, jsonl.PLAIN]
    assert expected.tolist() == [jsonl.PLAIN] * 3


def long_lines(size):
    """(line, whether the device takes it)"""
    yield b'{"text":"%s"}' % (b"a" * size), True
    yield b'{"text":"%s"}' % (b"\\n" * (size // 2)), True
    yield b'{"text":"%s"}' % (rb"\u6f22" * (size // 6)), True
    yield b'{"text":"%s"}' % ("漢".encode() * (size // 3)), True
    yield b'{"text":"a","other":"%s"}' % (b"\\" * size), False
    yield b'{"text":"a","other":[%s0]}' % (b"1," * (size // 2)), False
    yield b'{"text":"a","other":[%s""]}' % (b'"",' * (size // 3)), False
    yield b'{"text":"a","other":%s}' % (b"1" * size), False
    yield b'{"text":"a","other":%s%s}' % (b"[" * size, b"]" * size), False
    yield b'{"text":"a","%s":1}' % (b"k" * size), False
    yield b'{"text":"a","id":"%s"}' % (b"i" * size), False
    yield b'{"text":"a"%s}' % (b" " * size), False
    yield b'{"text":"%s' % (b"a" * size), False
    yield b" " * size, False
    yield b'"' * size, False


@pytest.mark.slow("threads that parse long lines of JSON take a bounded number of steps")
def test_no_thread_is_long(monkeypatch):
    _, device = install_engine(monkeypatch, None)
    lines, taken = zip(*long_lines(200_000), strict=True)
    found, _ = assert_equal_lines(b"\n".join(lines))
    assert [kind == jsonl.PLAIN for kind in found] == list(taken)
    longest = {name: counts.longest for name, counts in device.counts.items()}
    assert max(longest.values()) < LONGEST_THREAD, longest


@pytest.mark.parametrize("seed", SOME_SEEDS)
def test_real_documents(monkeypatch, real_file, seed):
    install_engine(monkeypatch, seed)
    found, expected = assert_equal_lines(real_file.read_bytes())
    np.testing.assert_array_equal(found, expected)
