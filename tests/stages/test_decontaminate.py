# SPDX-License-Identifier: Apache-2.0
"""`decontaminate` equals sets of tuples; evaluation texts that cannot be read, or have changed, are no small matter."""

import json
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import curation
from curation.base.engine import load_engine
from curation.base.errors import InputError, IntegrityError, OutputError, RecipeError
from curation.base.system.sessions import TaskSession
from curation.reading.inputs import Input
from curation.recipes.recipe import Recipe
from curation.record.stored_plan import Plan
from curation.running import run as runner
from curation.running.run import run
from curation.stages import Decontaminate
from curation.stages.corpus.similarity import COMPARISONS, ShingleSettings
from curation.stages.exact import evaluation_items, leaks
from tests.conftest import frame_of
from tests.corpus import real_documents
from tests.oracle.leaks import leaks_in
from tests.oracle.rewriting import compared
from tests.runs import data_digests, kept_rows, recipe_of, records_of, removed_rows, report_of, table_rows

WORDS = ["a", "B", "-", "a’b", "1,2", "c", "É", "e\u0301", "漢字", "The", "of", "x\u00a0y"]


def outcome(
    texts: list[str], evaluation: dict[str, list[str]], folder: Path, slice_bytes: int = 2000, **options: Any
) -> Path:
    (folder / "made.jsonl").write_bytes(records_of(texts))
    files = []
    for name, found in evaluation.items():
        (folder / f"{name}.jsonl").write_bytes(records_of(found))
        files.append({"path": str(folder / f"{name}.jsonl"), "name": name})
    stage = {"kind": "decontaminate", "evaluation_files": files, **options}
    recipe = recipe_of(folder / "made.jsonl", stages=[stage], output={"formats": []})
    run(recipe, folder / "out", engine="cpu", force=True, workers=2, slice_bytes=slice_bytes)
    return folder / "out"


def found_in(
    texts: list[str], evaluation: dict[str, list[str]], size: int, **rule: Any
) -> list[list[tuple[str, int, int]]]:
    """Per text: the inputs and numbers of the items that it contains, and how many of their n-grams."""
    items = [(name, text) for name, own in evaluation.items() for text in own]
    leaks = leaks_in(texts, [(item, "") for _, item in items], size, **rule)
    return [[(items[leak.item][0], leak.item, leak.ngrams) for leak in own] for own in leaks]


@pytest.mark.parametrize(
    ("size", "least", "most", "compare"), [(3, 1, 10, "lowercase"), (2, 3, 4, "exact"), (13, 1, 10, "visible")]
)
def test_equals_sets_of_tuples(tmp_path: Path, size: int, least: int, most: int, compare: str):
    chance = random.Random(size)

    def text(longest: int) -> str:
        return " ".join(chance.choice(WORDS) + chance.choice("pqrs") for _ in range(chance.randrange(longest)))

    evaluation = {"quiz": [text(30) for _ in range(20)], "sums": [text(30) for _ in range(20)]}
    texts = [text(60) for _ in range(150)]
    for number in range(0, 150, 5):
        texts[number] += " " + chance.choice(chance.choice([*evaluation.values()])).swapcase()
        texts[number + 1] += " " + chance.choice(chance.choice([*evaluation.values()]))
    expected = found_in(texts, evaluation, size, compare=compare, least=least, most=most)
    rule = {"ngram": size, "min_ngrams": least, "max_documents": most, "compare": compare}
    out = outcome(texts, evaluation, tmp_path, **rule)
    gone = {doc: leaks[0] for doc, leaks in enumerate(expected) if leaks}
    assert [doc for doc, *_ in kept_rows(out)] == [doc for doc in range(150) if doc not in gone]
    assert [(doc, reason, value) for doc, _, _, _, reason, value, _ in removed_rows(out)] == [
        (doc, "contaminated", float(ngrams)) for doc, (*_, ngrams) in gone.items()
    ]
    firsts = [name for name, *_ in gone.values()]
    seen = {(name, item) for own in expected for name, item, _ in own}
    sets = report_of(out)["stages"][0]["details"]["sets"]
    assert [(entry["name"], entry["items"], entry["items_seen"], entry["documents"]) for entry in sets] == [
        (name, 20, sum(other == name for other, _ in seen), firsts.count(name)) for name in evaluation
    ]
    assert 5 < len(gone) < 145


SHORT = st.lists(st.sampled_from([*WORDS[:5], "word", "other"]), max_size=12).map(" ".join)


@pytest.mark.slow("decontamination of any text is that of plain Python")
@settings(max_examples=60)
@given(
    st.lists(SHORT, max_size=9),
    st.lists(st.tuples(SHORT, SHORT), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from([0, 1, 2, 10]),
)
def test_equals_plain_python_on_anything(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], items: list[tuple[str, str]], alone: bool,
    most: int,
):  # fmt: skip
    for column in zip(*items, strict=True):  # questions without words are refused, and so are answers
        assume(any(compared(text, "visible").split() for text in column))
    quiz = tmp_path_factory.mktemp("made") / "quiz.jsonl"
    lines = [{"text": question, "answer": answer} for question, answer in items]
    quiz.write_text("".join(json.dumps(line) + "\n" for line in lines))
    texts = [*texts, *(f"{before} {question} {before} {answer}" for question, answer in items for before in texts)]
    frame = pd.DataFrame({"text": texts}, dtype="str")
    kept = curation.decontaminate(
        frame, quiz, ngram=9, answer_column="answer", removes_question=alone, max_documents=most
    )
    leaks = leaks_in(texts, items, 9, alone=alone, most=most)
    assert kept.index.tolist() == [doc for doc, own in enumerate(leaks) if not (own and own[0].counts)]


@pytest.mark.parametrize("window", [leaks.WINDOW, 300])
def test_removed_documents_name_the_item_and_the_longest_text_that_matches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int
):
    monkeypatch.setattr(leaks, "WINDOW", window)
    monkeypatch.setattr(leaks, "OVERLAP", 100)
    evaluation = {"quiz": ["a b c", "d e f g h"], "sums": ["x y z", "D E F h", "short"]}
    filler = " ".join(f"w{k}" for k in range(200))
    texts = [f"{filler} E F G {filler} d e f g a b c", f"c d E\nf {filler}", filler, "SHORT", "e f h"]
    out = outcome([text.replace("w", "word") for text in texts], evaluation, tmp_path, ngram=3, compare="visible")
    names = ("doc", "value", "matched_text", "evaluation_set", "evaluation_file", "evaluation_item")
    found = [(*row[:4], Path(row[4]).name, row[5]) for row in table_rows(out / "removed", *names)]
    assert found == [(3, 1.0, "short", "sums", "sums.jsonl", 3), (4, 1.0, "e f h", "sums", "sums.jsonl", 2)]
    spelled = {
        name: [" ".join(f"{word}{word}" for word in text.split()) for text in own] for name, own in evaluation.items()
    }
    again = [" ".join(word if word[0] == "w" else word * 2 for word in text.split()) for text in texts]
    (tmp_path / "again").mkdir()
    out = outcome(again, spelled, tmp_path / "again", ngram=3)
    found = [(*row[:4], Path(row[4]).name, row[5]) for row in table_rows(out / "removed", *names)]
    assert found == [
        (0, 2.0, "dd ee ff gg", "quiz", "quiz.jsonl", 2),
        (1, 1.0, "dd ee ff", "quiz", "quiz.jsonl", 2),
        (3, 1.0, "shortshort", "sums", "sums.jsonl", 3),
        (4, 1.0, "ee ff hh", "sums", "sums.jsonl", 2),
    ]


QUESTION = "Why is the Ζίπφ law of words, 1935, about 7 ranks?"  # ten words
ITEMS = [
    (QUESTION, "Because of habit"),
    ("Who wrote Lolita, twice?", "Nabokov"),
    ("Is it?", "No"),
    (f"{QUESTION} " * 2, ""),
]
FILLER = "Some İstanbul text, which stays."


@pytest.mark.parametrize(
    ("text", "alone", "left"),
    [
        (f"{FILLER} {QUESTION} {FILLER}", True, f"{FILLER} ? {FILLER}"),
        (f"{FILLER} {QUESTION} {FILLER}", False, None),
        (
            f"{FILLER} {QUESTION.upper()} It is: BECAUSE of\u00ad habit! {FILLER}",
            False,
            f"{FILLER} ? It is: ! {FILLER}",
        ),
        (f"> who wrote\n> Lolita twice?\n> {FILLER} -- Nabokov.", True, f"> ?\n> {FILLER} -- ."),
        (f"> who wrote\n> Lolita twice?\n> {FILLER * 20} -- Nabokov.", True, None),
        ("Is it? No", True, None),
        ("Is it", True, ""),
        (f"{QUESTION} {QUESTION}", True, ""),
    ],
)
def test_short_questions_and_answers(tmp_path: Path, engine: ModuleType, text: str, alone: bool, left: str | None):
    quiz = tmp_path / "quiz.jsonl"
    quiz.write_text("".join(json.dumps({"text": question, "answer": answer}) + "\n" for question, answer in ITEMS))
    for part in ("document", "span"):
        stage = Decontaminate(
            evaluation_files=(str(quiz),), answer_column="answer", removes_question=alone, removes_part=part
        )
        frame = frame_of(engine, [FILLER, text])
        texts = engine.to_arrow(curation.apply(frame, stage)).column("text").to_pylist()
        assert texts == [FILLER] + ([text] if left is None else [left] if part == "span" and left else [])


PIECES = [
    *"aB1 ,-Σİ\n", "\ufb01", "\u00bd", "\u2026", "e\u0301", "\u1112\u1161\u11ab", "\uff76\uff9e", "\u3000", "\u00ad",
    "\u0340", "\u1361", "\u200b", "漢字", "\U0001d400", "\ufdfa", "о", "ё", "\u0430\u0308\u0323",
]  # fmt: skip


def test_places_of_compared_characters():
    """Each compared character is in its place of the text, and all together leave out no other one."""
    draw, settings = random.Random(4), ShingleSettings(COMPARISONS["visible"], 3, False, "scripts")
    assert leaks.places_in("ab of\ufb01ce ½ x", [(4, 6), (8, 9)], settings) == [(5, 6), (9, 10)]
    assert leaks.places_in("ＡＢＣ\u3000ＤＥ", [(3, 5)], settings) == [(4, 6)]
    for _ in range(40):
        text = "".join(draw.choices(PIECES, k=12))
        wanted = [*"".join(compared(text, "visible").split())]
        places = [leaks.places_in(text, [(number, number + 1)], settings)[0] for number in range(len(wanted))]
        for char, (first, last) in zip(wanted, places, strict=True):
            assert char in compared(text[first:last], "visible").replace("σ", "ς") + "σ", (text, char)
        assert places == sorted(places)
        inside = {place for first, last in places for place in range(first, last)}
        rest = "".join(char for place, char in enumerate(text) if place not in inside)
        assert not compared(rest, "visible").strip(), text


@pytest.mark.slow("evaluation texts in real text are found")
def test_real_text_hides_nothing(tmp_path: Path):
    texts = real_documents()
    hidden = {doc: " ".join(texts[doc].split()[5:25]).upper() for doc in (3, 40, 77) if len(texts[doc].split()) > 30}
    out = outcome(texts, {"quiz": [*hidden.values()]}, tmp_path, slice_bytes=200_000)
    gone = {doc for doc, *_ in removed_rows(out)}
    assert (
        hidden.keys() <= gone == {doc for doc, own in enumerate(found_in(texts, {"q": [*hidden.values()]}, 13)) if own}
    )


LICENCE = (
    "Permission is hereby granted, free of charge, to any person who obtains a copy of this program and its notes."
)
TASK = "Return the smallest prime number above the given bound, and raise an error for numbers below two please."
OTHER = "Count how often the letter z occurs in every second line of a text file that has no header at all."


@pytest.mark.parametrize("slice_bytes", [700, 1 << 20])
def test_common_text_decides_nothing(tmp_path: Path, slice_bytes: int):
    """A licence in an item is no leak in 12 documents. A whole item is one, however often it is copied, and so is a
    part that few documents have, with or without the licence. Exact copies of a document count once."""
    evaluation = {"code": [f"{LICENCE} {TASK} {OTHER}"], "again": [OTHER, TASK]}
    part = f"{LICENCE} {OTHER}"
    texts = [f"File {number}. {LICENCE}" for number in range(12)] + [f"File 0. {LICENCE}"] * 3
    texts += [f"Copy {number}: {LICENCE} {TASK} {OTHER}" for number in range(12)]
    assert kept_of(texts, evaluation, tmp_path, slice_bytes) == [*range(15)]
    texts = texts[:15] + [f"{number} {part} is all." for number in range(5)]
    assert kept_of(texts, evaluation, tmp_path, slice_bytes) == [*range(15)]
    assert kept_of(texts, evaluation, tmp_path, slice_bytes, max_documents=0) == []
    texts = [f"{number} {part} is all." for number in range(12)]
    assert kept_of(texts, evaluation, tmp_path, slice_bytes) == [*range(12)]
    texts = [texts[0]] * 12
    assert kept_of(texts, evaluation, tmp_path, slice_bytes) == []


def kept_of(
    texts: list[str], evaluation: dict[str, list[str]], folder: Path, slice_bytes: int, **options: Any
) -> list[int]:
    """The kept documents. Those that are removed have notes of one item, and the report has what is common."""
    out = outcome(texts, evaluation, folder, slice_bytes, **options)
    expected = found_in(texts, evaluation, 13, most=options.get("max_documents", 10))
    kept = [doc for doc, *_ in kept_rows(out)]
    assert kept == [doc for doc, own in enumerate(expected) if not own]
    details = report_of(out)["stages"][0]["details"]
    gone = table_rows(out / "removed", "doc", "evaluation_set", "evaluation_item", "matched_text")
    assert [doc for doc, *_ in gone] == [doc for doc in range(len(texts)) if doc not in kept]
    assert {row[1:3] for row in gone} <= {("code", 1)}
    assert all(text.split()[-1] in {"all", "please", "notes"} for *_, text in gone)
    assert details["shared_ngrams"] == 15
    assert [entry["evaluation_set"] for entry in details["common"]] == ["code"] * bool(details["common_ngrams"])
    if details["common_ngrams"]:
        assert f"in {details['common'][0]['documents']} documents" in (out / "report.html").read_text()
    return kept


@pytest.mark.slow("`decontaminate` does not depend on slices and processes")
def test_slices_and_processes_change_nothing(tmp_path: Path):
    texts = [f"{number} the quick brown fox jumps over {number % 7}" for number in range(300)]
    out = outcome(texts, {"quiz": ["OVER 3 the", "Fox jumps over 5"]}, tmp_path, ngram=4, compare="lowercase")
    evaluation = [{"path": str(tmp_path / "quiz.jsonl")}]
    stage = {"kind": "decontaminate", "evaluation_files": evaluation, "ngram": 4, "compare": "lowercase"}
    recipe = recipe_of(tmp_path / "made.jsonl", stages=[stage], output={"formats": []})
    run(recipe, tmp_path / "other", engine="cpu", workers=2, scheduler="processes", slice_bytes=5000)
    assert data_digests(tmp_path / "other") == data_digests(out)
    assert len(removed_rows(out)) == 300 // 7 + 1


def test_another_text_is_another_run(tmp_path: Path):
    recipe, quiz = small_run(tmp_path)
    assert run(recipe, tmp_path / "out").report["documents"]["kept"] == 1
    assert run(recipe, tmp_path / "out").already_complete
    quiz.write_text("Five six\n")
    with pytest.raises(OutputError, match=r"changed: .*quiz\S* of stage decontaminate \(content\)"):
        run(recipe, tmp_path / "out")
    run(recipe, tmp_path / "out", force=True)
    assert [text for *_, text in kept_rows(tmp_path / "out")] == ["one two three"]


def test_another_comparison_is_another_run(tmp_path: Path):
    texts, quiz = ["One - two, three"], {"quiz": ["one two three"]}
    assert kept_rows(outcome(texts, quiz, tmp_path, ngram=3)) == []
    stage = {"kind": "decontaminate", "evaluation_files": [{"path": str(tmp_path / "quiz.jsonl"), "name": "quiz"}]}
    recipe = recipe_of(
        tmp_path / "made.jsonl", stages=[{**stage, "ngram": 3, "compare": "lowercase"}], output={"formats": []}
    )
    with pytest.raises(OutputError, match=r"changed: stages\[0\]\.compare\. Give a new --output, or --force"):
        run(recipe, tmp_path / "out")


def small_run(folder: Path) -> tuple[Recipe, Path]:
    """A recipe of two documents, the first of which has the words of `quiz.txt`."""
    (folder / "made.jsonl").write_bytes(records_of(["one two three", "four five six"]))
    (folder / "quiz.txt").write_text("Two three\n")
    stage = {"kind": "decontaminate", "evaluation_files": [str(folder / "quiz.txt")], "ngram": 2}
    return recipe_of(folder / "made.jsonl", stages=[stage], output={"formats": []}), folder / "quiz.txt"


def test_texts_that_change_during_a_run_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recipe, quiz = small_run(tmp_path)
    run_session = TaskSession.run

    def rewritten(self: Any, function: Any, items: Any, *done: Any) -> None:
        quiz.write_text("Five six, seven\n")
        run_session(self, function, items, *done)

    monkeypatch.setattr(TaskSession, "run", rewritten)
    run(recipe, tmp_path / "out", engine="cpu")
    assert [text for *_, text in kept_rows(tmp_path / "out")] == ["four five six"]


def test_texts_that_change_while_a_run_is_planned_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recipe, quiz = small_run(tmp_path)
    planned = runner.make_plan

    def rewritten(*arguments: Any) -> Plan:
        plan = planned(*arguments)
        quiz.write_text("Five six, seven\n")
        return plan

    monkeypatch.setattr(runner, "make_plan", rewritten)
    with pytest.raises(IntegrityError, match=r"changed during the run: .*quiz.txt of stage decontaminate"):
        run(recipe, tmp_path / "out", engine="cpu")


def test_texts_among_the_outputs_are_refused_before_anything_is_deleted(tmp_path: Path):
    recipe, _ = small_run(tmp_path)
    run(recipe, tmp_path / "out", engine="cpu")
    own = {"kind": "decontaminate", "evaluation_files": [str(tmp_path / "out/documents/*.parquet")]}
    again = recipe_of(tmp_path / "made.jsonl", stages=[own], output={"formats": []})
    with pytest.raises(InputError, match="lies in the output folder"):
        run(again, tmp_path / "out", engine="cpu", force=True)
    assert len(kept_rows(tmp_path / "out")) == 1


def test_a_broken_record_is_counted_from_the_start_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(evaluation_items, "SLICE_BYTES", 100)
    quiz = tmp_path / "quiz.jsonl"
    quiz.write_bytes(records_of(["some words"] * 40) + b"no record\n")
    with pytest.raises(InputError, match="record 41: not valid JSON"):
        Decontaminate(evaluation_files=(str(quiz),)).evaluation(load_engine("cpu"))


def test_one_path_needs_no_list(tmp_path: Path):
    _, quiz = small_run(tmp_path)
    names = {
        Decontaminate(evaluation_files=given).inputs[0].path for given in (str(quiz), quiz, (quiz,), Input(path=quiz))
    }
    assert names == {str(quiz)}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "quiz.jsonl"),
        (b'{"text": "a b"}\nno record\n', "record 2: not valid JSON"),
        (b'{"text": " "}\n', "the evaluation texts of quiz have no words"),
        (b'{"text": "a b", "answers": "c"}\n', "no record has words in 'answer', the answer_column"),
    ],
    ids=["missing", "broken", "empty", "without answers"],
)
def test_texts_that_cannot_be_read_stop_the_run_before_it_begins(tmp_path: Path, content: bytes | None, told: str):
    path, quiz = tmp_path / "made.jsonl", tmp_path / "quiz.jsonl"
    path.write_bytes(records_of(["one two three"]))
    if content is not None:
        quiz.write_bytes(content)
    stage = {"kind": "decontaminate", "evaluation_files": [str(quiz)]}
    stage |= {"answer_column": "answer"} if "answer" in told else {}
    recipe = recipe_of(path, stages=[stage], output={"formats": []})
    with pytest.raises(InputError, match=told):
        run(recipe, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_run_says_how_many_items_are_searched_in_which_way(tmp_path: Path):
    long = " ".join(f"word{number}" for number in range(20))
    questions = [long, "one two three four five six seven eight", "one two three four", "one two"]
    (tmp_path / "quiz.jsonl").write_bytes(records_of(questions, answer="five"))
    (tmp_path / "made.jsonl").write_bytes(records_of(["A text.", f"Copied: {long}"]))
    for answers, short, whole in (({}, 1, 2), ({"answer_column": "answer"}, 2, 1)):
        stage = {"kind": "decontaminate", "evaluation_files": [str(tmp_path / "quiz.jsonl")], **answers}
        recipe = recipe_of(tmp_path / "made.jsonl", stages=[stage], output={"formats": []})
        found = f"3 with fewer words than an n-gram: {short} searched as short questions, {whole} found only as whole"
        report = run(recipe, tmp_path / "out", engine="cpu", force=True).report
        assert found in recipe.stages[0].explain()[-1]
        assert any(found in warning for warning in report["warnings"])
        assert f"1 removed, by quiz 1; 4 evaluation items, {found}" in (tmp_path / "out/report.html").read_text()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"evaluation_files": []}, "evaluation_files is empty"),
        ({"evaluation_files": ["hf:some/set"]}, "local files, not hf:some/set"),
        ({"evaluation_files": ["https://x.org/a.jsonl"]}, "local files"),
        (
            {"evaluation_files": [{"path": "a.jsonl", "sample": 0.5}]},
            "sample of a.jsonl has no meaning in evaluation_files",
        ),
        ({"ngram": 0}, "ngram must be at least 1, not 0"),
        ({"min_ngrams": 0}, "min_ngrams must be at least 1, not 0"),
        ({"removes": "spans"}, "removes must be document or span, not 'spans'; did you mean span?"),
        ({"removes_question": False}, "keeps questions without their answers; it needs answer_column"),
        ({"compare": "lower"}, "no comparison 'lower'; did you mean lowercase"),
    ],
)
def test_wrong_settings(changed: dict[str, Any], told: str):
    with pytest.raises(RecipeError, match=told):
        recipe_of(Path("a"), stages=[{"kind": "decontaminate", "evaluation_files": ["a.jsonl"], **changed}])
