# SPDX-License-Identifier: Apache-2.0
"""A changed default needs a raised revision, a note below `### Migration`, and the command that writes the file."""

import pytest

from tests.scripts import make_defaults
from tests.scripts.make_defaults import explain, read_changelog

OLD = {"fuzzy_dedup (revision)": 4, "filter (revision)": 3, "fuzzy_dedup.threshold": 0.8, "output.raw": ""}
OLD |= {"gopher.order": ["long"], "gopher.long": {"max": 9}}
KEPT = {"fuzzy_dedup.threshold": {"section": "0.4", "was": "0.7", "revision": 4}}
RAISE, NOTE, RUN = "Raise `revision` of", "Add below `### Migration`", "Run `python"


def steps(changes: dict, *notes: str, removed: str = "", kept: dict | None = None) -> str:
    text = "# Changelog\n\n## [0.4]\n\n### Migration\n\n" + "".join(f"- {note}\n" for note in notes)
    now = {name: value for name, value in {**OLD, **changes}.items() if name != removed}
    return explain(
        {"changed": kept or {}, "defaults": OLD}, now, read_changelog(text + "\n## [0.3]\n\n- `output.raw`\n")
    )


def test_defaults_are_those_of_the_file():
    said = explain(make_defaults.read_golden(), make_defaults.defaults(), make_defaults.changelog())
    assert not said, said


def test_the_file_is_written_as_it_is():
    assert make_defaults.file_text(make_defaults.read_golden()) == make_defaults.GOLDEN.read_text("utf-8")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (steps({}), []),
        (steps({"fuzzy_dedup.threshold": 0.85}), [f"1. {RAISE} fuzzy_dedup to 5", f"2. {NOTE} of [0.4]", f"3. {RUN}"]),
        (steps({"fuzzy_dedup.threshold": 0.85}), ["`fuzzy_dedup.threshold` is 0.85, before 0.8", "has revision 5."]),
        (steps({"fuzzy_dedup.threshold": 0.85, "fuzzy_dedup (revision)": 5}), [f"1. {NOTE}", f"2. {RUN}"]),
        (
            steps({"fuzzy_dedup.threshold": 0.85}, "`fuzzy_dedup` has\n  revision 5: `fuzzy_dedup.threshold` is 0.85."),
            [f"1. {RAISE} fuzzy_dedup to 5", f"2. {RUN}"],
        ),
        (
            steps({"fuzzy_dedup.threshold": 0.85, "fuzzy_dedup (revision)": 5}, "`fuzzy_dedup` has revision 5",
                  "of before: `--set stages.fuzzy_dedup.threshold=0.8` for 0.85"), [f"1. {RUN}"],
        ),
        (steps({"output.raw": "csv"}, "`output.raw` is jsonl"), [f"1. {NOTE}", "`output.raw` is \"csv\"", f"2. {RUN}"]),
        (steps({"output.raw": "csv"}, "`output.raw` is csv"), [f"1. {RUN}"]),
        (steps({}, removed="output.raw"), [f"1. {NOTE}", "`output.raw` is removed"]),
        (steps({"output.new": 1}), ["output.new: (none) -> 1", f"1. {RUN}"]),
        (steps({"gopher.long": {"max": 8}}), [f"1. {RAISE} filter to 4", f"2. {NOTE}", "`gopher.long` has other"]),
        (steps({"gopher.order": ["long", "a"], "gopher.a": {}}), [f"{RAISE} filter", "`gopher.order`", "`gopher.a`"]),
        (steps({}, kept=KEPT), [f"{RAISE} fuzzy_dedup", "`fuzzy_dedup.threshold` is 0.8, before 0.7"]),  # lost
        (steps({}, kept={"fuzzy_dedup.threshold": KEPT["fuzzy_dedup.threshold"] | {"section": "0.3"}}), []),
    ],
)  # fmt: skip
def test_one_message_says_all_that_is_missing(found: str, expected: list[str]):
    assert [part for part in expected if part not in found] == [] and bool(found) == bool(expected)
    assert found.count(". ") >= sum(part[:1].isdigit() for part in expected)
