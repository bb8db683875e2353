# SPDX-License-Identifier: Apache-2.0
"""The default recipe keeps good text of every language, and the English documents that Gopher's rules keep. Documents
without a label are counted."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from curation.recipes.recipe import load_recipe
from curation.running.planning.estimate import estimate
from curation.running.run import run
from tests.corpus import DATA
from tests.rules.test_unknown_language import ANY, MENU, PROSE
from tests.runs import recipe_of, table_rows
from tests.scripts.your_language import OTHER, OWN, PAGE, REMOVED, UNKNOWN, judged, table_of

MIN_CHARACTERS = 700


def kept_ids(path: Path, out: Path, *settings: str) -> list[str]:
    recipe = load_recipe("default", input=str(path), settings=["output.formats=[]", *settings])
    run(recipe, out, engine="cpu", progress=False)
    return [str(id_) for (id_,) in table_rows(out / "documents", "id")]


def write_texts(path: Path, records: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_good_text_of_every_language_is_kept(tmp_path: Path):
    with gzip.open(DATA / "languages.jsonl.gz", "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    chosen = [record for record in records if len(record["text"]) >= MIN_CHARACTERS]
    texts = [record | {"id": f"{record['language']} {number}"} for number, record in enumerate(chosen)]
    path = write_texts(tmp_path / "texts.jsonl", texts)
    kept = Counter(id_.split()[0] for id_ in kept_ids(path, tmp_path / "any"))
    of_gopher = Counter(id_.split()[0] for id_ in kept_ids(path, tmp_path / "gopher", "stages.filter.rules=gopher"))
    sizes = Counter(record["language"] for record in chosen)
    assert len(sizes) == 12 and min(Counter(record["language"] for record in records).values()) >= 50
    assert {language for language in sizes if 5 * kept[language] < 4 * sizes[language]} == set()
    assert {language for language in sizes if 3 * of_gopher[language] >= sizes[language]} == {"en"}
    assert kept["en"] == of_gopher["en"]


@pytest.mark.slow("the page on languages says what the default recipe does with each of 532 translations")
def test_the_page_says_what_happens_to_each_language():
    """`python -m tests.scripts.your_language` writes the table."""
    excerpts = judged()
    assert table_of(excerpts) in PAGE.read_text("utf-8")
    assert sum(not reason for *_, reason in excerpts) >= 500
    made = table_of([("deu", "de", ""), ("und", "de", ""), ("und", None, ""), ("bod", None, "words_too_long")])
    numbers = {OWN: "1 | deu", UNKNOWN: "1 | ", OTHER: "1 | ", REMOVED: "1 | bod (`words_too_long`)"}
    assert made.endswith("".join(f"| {row} | {rest} |\n" for row, rest in numbers.items()))


def test_a_run_and_a_plan_count_documents_without_a_label(tmp_path: Path):
    judge = {"set": "gopher_multilingual", "other": "und", "override": ANY}
    stages = [
        {"kind": "filter", "name": "first", "rules": [{"measure": "words", "min": 2}]},
        {"kind": "language", "label_probability": 0.99},
        {"kind": "filter", "name": "judge", "rules": [judge]},
        {"kind": "exact_dedup"},
    ]
    texts = [
        *(f"{number} {PROSE}" for number in range(8)),
        *(f"{number} {MENU}" for number in range(3)),
        f"0 {PROSE}",
        "",
    ]
    path = write_texts(tmp_path / "in.jsonl", [{"text": text} for text in texts])
    recipe = recipe_of(path, stages=stages, output={"formats": []})
    start = "12 of 12 documents (100%) have no label;"
    ends = "judge (too_few_sentence_ends) 3"
    planned = estimate(recipe, tmp_path / "out")
    assert planned.stages[1].unlabelled == f"{start} all stages keep 9 of these and remove 3: {ends}"
    report = run(recipe, tmp_path / "out", engine="cpu", progress=False).report
    line = f"{start} all stages keep 8 of these and remove 4: {ends}, exact_dedup (exact_duplicate) 1"
    assert report["stages"][1]["lines"][-1] == line
    assert report["values"]["most_removed"]["none"] == {
        "stage": "judge", "reason": "too_few_sentence_ends", "documents": 3,
    }  # fmt: skip
    short = recipe_of(path, stages=stages, output={"formats": [], "removed": "ids"})
    lines = run(short, tmp_path / "short", engine="cpu", progress=False).report["stages"][1]["lines"]
    assert lines[-1] == f"{start} all stages keep 8 of these and remove 4"
    warning = "language: 100% of the documents have no label, because no language has a probability of at least 0.99."
    assert [sum(each.startswith(warning) for each in own) for own in (planned.warnings, report["warnings"])] == [1, 1]
