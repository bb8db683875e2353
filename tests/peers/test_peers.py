# SPDX-License-Identifier: Apache-2.0
"""Cases of ten other tools' own tests: what they expect, and whether this project gives it.

`cases/*.json` has inputs and expected values, which are facts, and the reason of each difference in one line. A verdict
that changes, in either direction, is an error: the table and `docs/peers.md` tell what is true.
"""

from importlib.util import find_spec

import pytest

from tests.peers import files, tokens  # noqa: F401  they have adapters, too
from tests.peers.adapters import results_of
from tests.peers.cases import PAGE, PEERS, Case, Group, cases_of, equal, groups_of, page, unnamed

# Adapters that make whole runs, load other tokenizers, or compare the rows of each case: together 11 CPU seconds.
SLOW = {
    "decoded_tokens", "edited_after", "html_lines", "index_bytes", "joined_groups", "merged", "read", "round_trips",
    "run", "sampled", "similarities", "survivors", "survivors_after", "token_counts", "tokens",
}  # fmt: skip
ALL_CASES = 1426
EXPRESSIBLE, AGREE = 843, 786  # at least


def mistakes(group: Group) -> list[str]:
    """The cases of a group whose verdict is not the one in the table."""
    results = results_of(group.adapter, group.settings, [case.input for case in group.cases])
    assert len(results) == len(group.cases)
    pairs = zip(group.cases, results, strict=True)
    return [told(case, got) for case, got in pairs if equal(got, case.expected, group.tolerance) is bool(case.differs)]


def told(case: Case, got: object) -> str:
    if case.differs:
        return f"{case.id}: agrees now; delete its `differs`"
    return f"{case.id}: got {got!r}, the peer expects {case.expected!r}"


def verdicts(peer: str, slow: bool) -> None:
    groups = [group for group in groups_of(peer) if (group.adapter in SLOW) is slow]
    groups = [group for group in groups if not group.needs or find_spec(group.needs)]
    wrong = [mistake for group in groups for mistake in mistakes(group)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("peer", PEERS)
def test_verdicts_on_texts_are_those_of_the_table(peer: str) -> None:
    verdicts(peer, slow=False)


@pytest.mark.slow("verdicts on cases of other tools that make whole runs or load tokenizers are those of the table")
@pytest.mark.parametrize("peer", [peer for peer in PEERS if any(group.adapter in SLOW for group in groups_of(peer))])
def test_verdicts_are_those_of_the_table(peer: str) -> None:
    verdicts(peer, slow=True)


def test_most_cases_run_in_the_quick_tests() -> None:
    groups = [group for peer in PEERS for group in groups_of(peer)]
    quick = sum(len(group.cases) for group in groups if group.adapter not in SLOW)
    assert {group.adapter for group in groups} >= SLOW and quick > EXPRESSIBLE / 2


def test_every_case_is_counted_once() -> None:
    """Of each case there is a verdict, and no case has moved to those that cannot be expressed."""
    names = [(peer, case.id) for peer in PEERS for group in groups_of(peer) for case in group.cases]
    names += [(peer, name) for peer in PEERS for names in unnamed(peer).values() for name in names]
    assert len(set(names)) == len(names) == ALL_CASES
    expressible = [case for peer in PEERS for case in cases_of(peer)]
    assert len(expressible) >= EXPRESSIBLE
    assert sum(not case.differs for case in expressible) >= AGREE


def test_reasons_are_one_line() -> None:
    for peer in PEERS:
        for case in cases_of(peer):
            assert len(case.differs) <= 120 and "\n" not in case.differs, case.id


def test_the_page_is_generated() -> None:
    """`make peers` writes it."""
    assert PAGE.read_text("utf-8") == page()
