# SPDX-License-Identifier: Apache-2.0
"""Read the cases of other tools, and write the page that counts them: `python -m tests.peers.cases`."""

import math
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

FOLDER = Path(__file__).parent / "cases"
PAGE = FOLDER.parents[2] / "docs" / "peers.md"
PEERS = (
    "datatrove", "Curator", "dolma", "data-juicer", "Megatron-LM", "tiktoken", "tokenizers", "lm-eval", "text-dedup",
    "fastText",
)  # fmt: skip


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One assertion of a peer: `differs` is empty, or the reason why the result here is another one."""

    id: str
    input: Any
    expected: Any
    differs: str = ""


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cases that one call of an adapter runs; `needs` names an optional package without which they are not run."""

    capability: str
    adapter: str
    settings: dict[str, Any] = {}
    tolerance: float = 1e-9
    needs: str = ""
    cases: list[Case]


class Peer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cases of a peer: those that a recipe or a function can express, and the names of the others by class."""

    source: str
    licence: str
    groups: list[Group]
    not_expressible: dict[str, list[str]]


@cache
def peer_of(name: str) -> Peer:
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=Peer)


def groups_of(name: str) -> list[Group]:
    return peer_of(name).groups


def cases_of(name: str) -> Iterator[Case]:
    for group in groups_of(name):
        yield from group.cases


def unnamed(name: str) -> dict[str, list[str]]:
    """Class -> names of the cases that cannot be expressed."""
    return peer_of(name).not_expressible


def equal(got: Any, expected: Any, tolerance: float) -> bool:
    """Whether a result is the expected one; numbers with a tolerance."""
    if isinstance(expected, list):
        same = isinstance(got, list) and len(got) == len(expected)
        return same and all(equal(mine, theirs, tolerance) for mine, theirs in zip(got, expected, strict=True))
    if isinstance(expected, float):
        return isinstance(got, int | float) and math.isclose(got, expected, abs_tol=tolerance)
    return bool(got == expected)


# ---- the page

HEAD = """# Cases of other tools

The tests of ten other tools state what they expect of a text, a rule or a file. This page counts how many of these
cases a recipe or a function here can express, and how many of them give the same result.

`tests/peers/cases` has inputs, expected values and, where the result here is another one, the reason. No code and no
documentation of a tool is here. An own text with the same property replaces a long one, and a small vocabulary with the
expected ids one from the network. `tests/peers/test_peers.py` fails if a verdict changes in either direction.
`make peers` writes this page.

A case is *expressible* if a recipe or a public function states it without code of your own. Cases on internals of a
tool, such as its classes or its command line, are not counted.
"""


def page() -> str:
    """The text of `docs/peers.md`."""
    return "\n".join([HEAD, *_verdicts(), *_differences(), *_not_expressible(), ""])


def _table(*names: str) -> list[str]:
    return ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]


def _verdicts() -> Iterator[str]:
    """Counts by peer."""
    yield from _table("tool", "licence", "cases", "expressible", "agree", "differ", "not expressible")
    total: Counter[str] = Counter()
    for peer in PEERS:
        counts = _counts(list(cases_of(peer)), sum(map(len, unnamed(peer).values())))
        total += counts
        yield _row(f"[{peer}](https://{peer_of(peer).source}) | {peer_of(peer).licence}", counts)
    yield _row("all | ", total)


def _counts(expressible: list[Case], others: int) -> Counter[str]:
    differ = sum(bool(case.differs) for case in expressible)
    return Counter(expressible=len(expressible), agree=len(expressible) - differ, differ=differ, others=others)


def _row(name: str, counts: Counter[str]) -> str:
    numbers = (
        counts["expressible"] + counts["others"],
        *(counts[key] for key in ("expressible", "agree", "differ", "others")),
    )
    return f"| {name} | " + " | ".join(f"{number:,}" for number in numbers) + " |"


def _differences() -> Iterator[str]:
    yield "\n## Differences\n"
    yield from _table("cases", "tool", "reason", "first case")
    for peer in PEERS:
        reasons: dict[str, list[str]] = {}
        for case in cases_of(peer):
            if case.differs:
                reasons.setdefault(case.differs, []).append(case.id)
        for reason, names in reasons.items():
            yield f"| {len(names)} | {peer} | {reason} | `{_cell(names[0])}` |"


def _not_expressible() -> Iterator[str]:
    yield "\n## Cases that cannot be expressed\n"
    yield "`tests/peers/cases` names these cases. Classes of one or two cases are not listed.\n"
    yield from _table("cases", "class", "tools")
    classes: dict[str, Counter[str]] = {}
    for peer in PEERS:
        for name, cases in unnamed(peer).items():
            classes.setdefault(name, Counter())[peer] += len(cases)
    for name, counts in sorted(classes.items(), key=lambda item: -item[1].total()):
        if counts.total() > 2:
            tools = ", ".join(f"{peer} {count}" for peer, count in counts.items())
            yield f"| {counts.total()} | {name} | {tools} |"


def _cell(name: str) -> str:
    return name.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
