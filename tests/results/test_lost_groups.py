# SPDX-License-Identifier: Apache-2.0
"""Inputs, values of columns, scripts and languages that a run removes almost wholly: a warning each, with the rule."""

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from curation.cli import main
from curation.recipes.recipe import as_builtins
from curation.record.lost_groups import SampledDocument, warn_of_lost_groups
from curation.running.planning.estimate import estimate
from curation.running.run import run
from curation.stages import Stage
from tests.runs import recipe_of, records_of

WORDS = {
    "en": "the of and that have with people house street water music winter letter river garden morning city bread "
    "children window school always between country number history little village because another thought between "
    "under light friend mother answer page should still learn plant cover food story often carry together mountain",
    "de": "der die und das nicht mit menschen haus strasse wasser musik winter brief fluss garten morgen stadt brot "
    "kinder fenster schule immer zwischen land zahl geschichte klein dorf weil andere gedanke durch licht freund "
    "mutter antwort seite sollte noch lernen pflanze decken essen oft tragen zusammen berg zeit leben jahr arbeit",
    "zh": "我们 今天 学习 中文 因为 语言 学校 老师 学生 城市 音乐 河流 早晨 面包 孩子 窗户 国家 历史 故事 朋友 母亲",
}
GOPHER = [{"kind": "filter", "rules": "gopher_quality"}]
NO_TOKENS = {"formats": []}


def texts_of(language: str, count: int) -> list[str]:
    chance, words = random.Random(language), WORDS[language].split()
    join = "".join if language == "zh" else " ".join
    return [join(chance.choices(words, k=90)) + "." for _ in range(count)]


def warnings_of(folder: Path, inputs: list[dict[str, Any]], stages: list[Any] = GOPHER, **rest: Any) -> list[str]:
    recipe = recipe_of(*inputs, stages=stages, output=NO_TOKENS, **rest)
    found = run(recipe, folder / "out", engine="cpu", progress=False).report["warnings"]
    return [line for line in found if "of the other documents" in line]


def written(path: Path, *languages: str, count: int = 30, **extra: Any) -> dict[str, Any]:
    """An input with 300 English documents, and `count` of each of the languages in the same file."""
    texts = [*texts_of("en", 300), *(text for name in languages for text in texts_of(name, count))]
    random.Random(1).shuffle(texts)
    path.write_bytes(records_of(texts, **extra))
    return {"path": str(path)}


def test_languages_of_one_file(tmp_path: Path):
    """The same warnings however the input is sliced, and from the sample of `plan`."""
    mixed = written(tmp_path / "mixed.jsonl", "de", "zh")
    found = warnings_of(tmp_path, [mixed])
    assert found == [
        "script 'Han': 30 of 30 documents are removed by filter (too_few_words); of the other documents 91% are kept. "
        "See curate show DIR --stage filter --reason too_few_words",
        "language 'de': 30 of 30 documents are removed by filter (too_few_stop_words); of the other documents 91% are "
        "kept. See curate show DIR --stage filter --reason too_few_stop_words",
    ]
    recipe = recipe_of(mixed, stages=GOPHER, output=NO_TOKENS)
    sliced = run(recipe, tmp_path / "sliced", engine="cpu", progress=False, slice_bytes=20_000).report
    assert [line for line in sliced["warnings"] if "of the other documents" in line] == found
    assert estimate(recipe).warnings == [line.partition(". See")[0] for line in found]


def of_one_language(path: Path, language: str, **extra: Any) -> dict[str, Any]:
    path.write_bytes(records_of(texts_of(language, 30), **extra))
    return {"path": str(path)}


def test_inputs_are_counted_and_their_languages_not_named_again(tmp_path: Path):
    """Also an input that a corpus stage removes: here, as copies of another one."""
    inputs = [written(tmp_path / "web.jsonl"), of_one_language(tmp_path / "german.jsonl", "de")]
    inputs.append({"path": str(tmp_path / "copy.jsonl")})
    (tmp_path / "copy.jsonl").write_bytes((tmp_path / "web.jsonl").read_bytes())
    assert warnings_of(tmp_path, inputs, [*GOPHER, {"kind": "exact_dedup"}]) == [
        "input 'copy': 300 of 300 documents are removed by exact_dedup (exact_duplicate); of the other documents 91% "
        "are kept. See curate show DIR --stage exact_dedup --reason exact_duplicate",
        "input 'german': 30 of 30 documents are removed by filter (too_few_stop_words); of the other documents 50% "
        "are kept. See curate show DIR --stage filter --reason too_few_stop_words",
    ]


def test_values_of_a_carried_column_and_the_folder_in_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    english = written(tmp_path / "a.jsonl", source="en.org")
    german = of_one_language(tmp_path / "b.jsonl", "de", source="de.org")
    whole = tmp_path / "whole.jsonl"
    whole.write_bytes(b"".join(Path(each["path"]).read_bytes() for each in (english, german)))
    recipe = recipe_of({"path": str(whole), "columns": {"domain": "source"}}, stages=GOPHER, output=NO_TOKENS)
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(as_builtins(recipe)))
    assert main(["run", str(tmp_path / "r.yaml"), "-o", str(tmp_path / "out"), "--log", "json"]) == 0
    [line] = [line for line in capsys.readouterr().err.splitlines() if "of the other documents" in line]
    assert "domain 'de.org': 30 of 30 documents are removed by filter (too_few_stop_words); of the" in line
    assert f"See curate show {tmp_path / 'out'} --stage filter" in line


LABELLED = {"kind": "language", "column": "label"}


@pytest.mark.parametrize(
    "stages",
    [
        [{"kind": "language", "keep": ["en"]}],
        [LABELLED, {"kind": "filter", "rules": [{"column": "label", "in": ["en"]}]}],
        [{"kind": "filter", "rules": [{"column": "lang", "in": ["en"]}]}],
        [{"kind": "filter", "rules": [{"per": "lang", "rules": {"en": "keep", "other": "remove"}}]}],
        [{"kind": "exact_dedup"}, {"kind": "select", "max_documents": 1, "per": "source"}],
    ],
    ids=["language", "column", "list", "other: remove", "number"],
)
def test_removals_that_the_recipe_asks_for_are_no_warning(tmp_path: Path, stages: list[Any]):
    """Neither of an input nor of a column of languages: 12 of its 30 German documents are copies."""
    german = (texts_of("de", 18) * 2)[:30]
    (tmp_path / "de.jsonl").write_bytes(records_of(german, lang="de"))
    inputs = [written(tmp_path / "mixed.jsonl", "zh", lang="en"), {"path": str(tmp_path / "de.jsonl")}]
    assert warnings_of(tmp_path, inputs, stages, columns=["lang"]) == []


def test_bounds_on_a_column_of_strings(tmp_path: Path):
    """A date is no number, so no document is kept. A column with one number is no warning."""
    path = tmp_path / "dated.jsonl"
    path.write_bytes(records_of(["one", "two"], published="2024-03-01", score="high") + records_of(["3"], score="0.5"))
    rules = [{"any": [{"column": "published", "min": 2024}, {"measure": "words", "min": 9}]}, {"score": {"min": 0.9}}]
    stages = [{"kind": "filter", "name": "dates", "rules": rules}]
    recipe = recipe_of({"path": str(path), "columns": ["published", "score"]}, stages=stages, output=NO_TOKENS)
    found = run(recipe, tmp_path / "out", engine="cpu", progress=False).report["warnings"]
    [line] = [line for line in found if "numbers" in line]
    assert line == (
        "dates (published_or_words): 0 of 2 sampled values of column 'published' are numbers, such as '2024-03-01'; "
        "min and max keep numbers only. For strings write in: [VALUE], or matches: PATTERN with min_count: 1, such as "
        "'^202[4-9]'"
    )
    assert estimate(recipe).warnings == [line]


def test_a_small_group_or_one_with_a_tenth_of_the_share_is_no_warning(tmp_path: Path):
    assert warnings_of(tmp_path, [written(tmp_path / "few.jsonl", "de", count=9)]) == []
    texts = [*texts_of("de", 30), *("the of and that " + text for text in texts_of("de", 34)[30:])]
    path = tmp_path / "some.jsonl"
    path.write_bytes(records_of([*texts_of("en", 300), *texts]))
    (tmp_path / "second").mkdir()
    assert warnings_of(tmp_path / "second", [{"path": str(path)}]) == []  # 4 of 34 are kept
    path.write_bytes(records_of([*texts_of("en", 300), *texts[:32]]))
    [line] = warnings_of(tmp_path / "third", [{"path": str(path)}])
    assert line.startswith("language 'de': 30 of 32 documents are removed by filter (too_few_stop_words); of the")


def test_many_groups_are_a_few_lines():
    """The largest first; and estimates say that they are estimates."""
    kept = [SampledDocument("kept", "", {}, None, 10.0)] * 1_000
    lost = [
        SampledDocument(f"lost {number}", "", {}, ("filter", "short"), 10.0 + number)
        for number in range(8)
        for _ in range(60)
    ]
    lines = warn_of_lost_groups([*kept, *lost], {}, {})
    assert len(lines) == 6 and lines[-1] == (
        "3 more groups removed as much: input 'lost 2', input 'lost 1', input 'lost 0'"
    )
    assert lines[0].startswith("input 'lost 7': about 1,000 of about 1,000 documents are removed by filter (short); ")
    assert ", by a sample. See " in lines[0]


def sampled(texts: list[str], lost: int, reason: str) -> list[SampledDocument]:
    """Documents of which the first `lost` are removed. Each stands for two."""
    gone = ("filter", reason)
    return [SampledDocument("a", text, {}, gone if place < lost else None, 2.0) for place, text in enumerate(texts)]


def stages_of(*stages: dict[str, Any]) -> dict[str, Stage]:
    recipe = recipe_of(Path("a.jsonl"), stages=[*stages])
    return dict(zip(recipe.stage_names, recipe.stages, strict=True))


PER_LANGUAGE = {"kind": "filter", "rules": [{"set": "fineweb2", "other": "en"}]}
LANGUAGE = {"kind": "language"}


@pytest.mark.parametrize(
    ("german", "reason", "stages", "end"),
    [
        ("\n", "too_many_newlines", [LANGUAGE, PER_LANGUAGE],
         "wrapped lines: join the lines before this stage, as docs/how_to/texts.md shows. See curate show DIR --stage "
         "filter --reason too_many_newlines --where language=de"),
        (" ", "too_many_newlines", [PER_LANGUAGE],
         "--set stages.filter.de.too_many_newlines=off. See curate show DIR --stage filter --reason too_many_newlines"),
        ("\n", "too_few_words", GOPHER,
         "To keep them, give their language its own bound, as docs/rules_per_language.md shows. See curate show DIR "
         "--stage filter --reason too_few_words"),
    ],
    ids=["wrapped", "per language", "one bound"],
)  # fmt: skip
def test_a_rule_that_removes_far_more_of_one_language(german: str, reason: str, stages: list[Any], end: str):
    known = stages_of(*stages)
    texts = [german.join(text[start : start + 70] for start in range(0, 490, 70)) for text in texts_of("de", 40)]
    english = sampled(texts_of("en", 300), 9, reason)
    [line] = warn_of_lost_groups([*english, *sampled(texts, 15, reason)], {}, known)
    start = (
        f"language 'de': filter ({reason}) removes 38% of about 80 documents, by a sample; of those in other languages"
    )
    assert line.startswith(f"{start} 3.0%. ") and line.endswith(end), line
    whole = sampled(texts_of("en", 300), 0, reason)
    assert warn_of_lost_groups([*whole, *sampled(texts, 9, reason)], {}, known) == []  # too few
    many = sampled(texts_of("en", 300), 60, reason)
    assert warn_of_lost_groups([*many, *sampled(texts, 15, reason)], {}, known) == []  # the others lose 20 %
    assert (
        warn_of_lost_groups([*english, *sampled(texts, 15, reason)], {}, stages_of(LANGUAGE)) == []
    )  # not by a rule on texts
