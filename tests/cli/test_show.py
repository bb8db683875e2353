# SPDX-License-Identifier: Apache-2.0
"""`curate show` and `curation.run_documents`."""

import json
import shutil
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

import curation
from curation.base.errors import InputWarning, OutputError, RecipeError
from curation.base.system.files import as_json
from curation.cli.main import main
from curation.results.report.marks import broken_spans, excerpt
from curation.results.report.report import digest
from curation.rules.decide import GOPHER_REPETITION, Rule
from curation.running.run import run
from tests.runs import recipe_of

STAGES: list[Any] = [
    {"kind": "filter", "name": "rules", "rules": [
        {"measure": "words", "min": 5, "reason": "short"},
        {"matches": "lorem", "max_count": 0, "reason": "lorem"},
        {"ratio": ["bullet_lines", "lines"], "max": 0.9, "reason": "bullets"},
    ]},
    {"kind": "exact_dedup"},
    {"kind": "fuzzy_dedup", "ngram": 2, "threshold": 0.7},
]  # fmt: skip
LONG = " ".join(f"word{number}" for number in range(60))
TEXTS = [
    "a short\x1b[2J text",
    "one lorem two lorem three four",
    "- a b\n- c d\n- e f",
    LONG,
    LONG.replace("word30", "changed"),
    LONG,
    *(f"document number {number} of the kept ones {number * 7} {number * 11}" for number in range(20)),
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("show")
    lines = [orjson.dumps({"text": text, "id": f"d{k}"}) for k, text in enumerate(TEXTS)]
    (folder / "a.jsonl").write_bytes(b"\n".join([*lines, b"{broken"]) + b"\n")
    run(recipe_of(folder / "a.jsonl", stages=STAGES), folder / "out", engine="cpu")
    run(recipe_of(folder / "a.jsonl", stages=STAGES, output={"removed": "ids"}), folder / "ids", engine="cpu")
    return folder / "out"


def shown(capsys: pytest.CaptureFixture[str], *words: Any) -> str:
    assert main(["show", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_a_removed_document_is_shown_with_its_reason_bound_and_marked_part(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    out = shown(capsys, finished, "--stage", "rules")
    monkeypatch.chdir(finished.parent)
    below = shown(capsys, finished, "--stage", "rules")
    assert (
        f"--- d0 (a); rules: short, words 3, bound 5; {finished.parent}/a.jsonl, line 1\na short\\x1b[2J text\n" in out
    )
    assert (
        "--- d1 (a); rules: lorem, value 2, bound 0; a.jsonl, line 2\none [[lorem]] two [[lorem]] three four\n" in below
    )
    assert "[[- a b]]\n[[- c d]]\n[[- e f]]" in out
    assert out.endswith("3 documents, seed 0\n") and "\x1b" not in out


def test_pairs_are_side_by_side_with_their_differences_and_similarity(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    out = shown(capsys, finished, "--what", "pairs", "--reason", "near_duplicate")
    assert "--- d4 (a); fuzzy_dedup: near_duplicate" in out and "kept: d3, Jaccard 0.9344" in out
    assert any("[[changed]]" in line and "| [[word30]]" in line for line in out.splitlines())
    assert "word2 " in out and "word7" in out
    table = curation.run_documents(finished, "pairs").to_pylist()
    assert [(row["id"], row["duplicate_of"], row["kept_text"] == LONG) for row in table] == [
        ("d4", "d3", True), ("d5", "d3", True),
    ]  # fmt: skip
    assert table[0]["jaccard"] == pytest.approx(57 / 61) and table[1]["jaccard"] == 1


def test_pairs_are_found_where_ids_repeat(tmp_path: Path):
    """A chain of near-duplicates over two files that are both numbered from 0. Earlier runs lack `duplicate_of_doc`."""
    words = LONG.split()
    chain = [" ".join(words[12 * k : 12 * k + 40]) for k in (0, 0, 1)]
    chain[1] = " ".join(words[6:46])
    for name, texts in {"a": ["another text of five words", chain[0]], "b": [chain[1], chain[2]]}.items():
        lines = [orjson.dumps({"text": text, "id": k}) for k, text in enumerate(texts)]
        (tmp_path / f"{name}.jsonl").write_bytes(b"\n".join(lines))
    stages = [{"kind": "fuzzy_dedup", "ngram": 1, "threshold": 0.7, "bands": 128, "rows": 1, "permutations": 128}]
    recipe = recipe_of(tmp_path / "a.jsonl", tmp_path / "b.jsonl", stages=stages, output={"formats": []})
    result = run(recipe, tmp_path / "out", engine="cpu")
    assert [line.partition(". ")[0] for line in result.report["warnings"]] == [
        "ids repeat: 2 of 2 different ids name several documents"
    ]
    found = curation.run_documents(tmp_path / "out", "pairs").to_pylist()
    names = ("doc", "id", "duplicate_of", "duplicate_of_doc", "kept_text", "link")
    assert [tuple(row[name] for name in names) for row in found] == [
        (2, "0", "1", 1, chain[0], None), (3, "1", "1", 1, chain[0], "0"),
    ]  # fmt: skip
    for path in (tmp_path / "out/removed").iterdir():
        pq.write_table(pq.read_table(path).drop_columns(["duplicate_of_doc"]), path)
    with pytest.warns(InputWarning, match="ids repeat: 1 of 1 ids of kept documents name several documents"):
        found = curation.run_documents(tmp_path / "out", "pairs").to_pylist()
    assert [(row["kept_text"], row["jaccard"], row["link"]) for row in found] == [(None, None, None)] * 2


def test_a_rule_chooses_documents_by_measures_and_by_columns(finished: Path):
    kept = curation.run_documents(finished, where="words: {min: 60}")
    assert kept.column("id").to_pylist() == ["d3"]
    removed = curation.run_documents(finished, "removed", where=Rule(column="value", min=2, max=2))
    assert removed.column("id").to_pylist() == ["d1"]
    by_value = curation.run_documents(finished, "removed", where="value=2")
    assert by_value.column("id").to_pylist() == ["d1"]
    assert len(curation.run_documents(finished, "removed", where="stage=ruls")) == 0
    assert len(curation.run_documents(finished, "kept", where={"matches": "kept ones", "min_count": 1})) == 20


def test_a_sample_depends_on_the_seed_alone(finished: Path):
    first, again, other = (
        curation.run_documents(finished, sample=5, seed=seed).column("doc").to_pylist() for seed in (1, 1, 2)
    )
    assert first == again == sorted(first) and len({*first}) == 5 and other != first
    assert len(curation.run_documents(finished)) == 21


def test_rejected_records_are_shown_with_file_and_line(finished: Path, capsys: pytest.CaptureFixture[str]):
    out = shown(capsys, finished, "--what", "rejected")
    assert f"--- {finished.parent / 'a.jsonl'}, line 27 (input a): " in out


def test_programs_get_one_object_per_document(finished: Path, capsys: pytest.CaptureFixture[str]):
    lines = shown(capsys, finished, "--reason", "lorem", "--log", "json", "--characters", "12").splitlines()
    document, result = map(json.loads, lines)
    assert document["event"] == "document" and document["id"] == "d1" and document["bound"] == 0
    assert (document["text"], document["marks"], document["text_characters"]) == ("one lorem tw", [[4, 9]], 30)
    assert result["event"] == "result" and result["documents"] == 1


def test_a_run_without_texts_still_shows_reasons(finished: Path, capsys: pytest.CaptureFixture[str]):
    ids = finished.parent / "ids"
    assert "a.jsonl, line 1\n(the run stored no texts" in shown(capsys, ids, "--reason", "short")
    for words in (("--what", "pairs"), ("--where", "words: {min: 3}")):
        assert main(["show", str(ids), *words]) == 2
        assert "has no texts of removed documents. Run its recipe again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--reason", "shrt"), "removed documents for the reason 'shrt'; did you mean short?"),
        (("--stage", "rule"), "has no stage 'rule'; did you mean rules?"),
        (("--stage", "rules", "--reason", "near_duplicate"), "stage rules of"),
        (("--what", "kept", "--reason", "short"), "reason has no meaning with kept documents"),
        (("--what", "rejected", "--where", "words: {min: 3}"), "a rule has no meaning with rejected records"),
        (("--where", "wrds: {min: 3}"), "no column 'wrds' in the documents; did you mean words?"),
        (("--where", "speech=de"), "has no column 'speech'; expected one of doc, id, source"),
        (("--what", "kept", "--where", "file=a.txt"), "columns: [path] in the input, then choose by path=a.txt"),
        (("--where", "__import__('os')"), "is no rule. Write one of"),
        (("--where", "[1]"), "is no rule. Write one of docs/rules.md"),
        (("--where", "words < 50"), "'words < 50' is no rule. Write one of docs/rules.md, such as 'words: {min: 50}'"),
        (("--sample", "0"), "sample must be at least 1, not 0"),
        (("--characters", "0"), "--characters: must be at least 1, not 0"),
        (("--what", "edits"), "unknown what 'edits'"),
    ],
)
def test_bad_choices_end_in_one_message(
    finished: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
):
    assert main(["show", str(finished), *words]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


def test_folders_without_a_finished_run_are_refused(finished: Path, tmp_path: Path):
    unfinished = Path(shutil.copytree(finished, tmp_path / "unfinished"))
    (unfinished / "report.json").unlink()
    (unfinished / "_work").mkdir()
    (unfinished / "_work/plan.json").write_text("{}")
    other = Path(shutil.copytree(finished, tmp_path / "other"))
    content = json.loads((other / "report.json").read_bytes())
    content["versions"]["gpu-pipeline"] = "9.9"
    content["recipe"]["output"]["removed"] = "everything"
    (other / "report.json").write_bytes(as_json(content | {"digest": digest(content)}, indent=True))
    for folder, message in (
        (unfinished, "its run has not finished. Rerun the command that made it"),
        (other, "It was written by version 9.9, this is .*. Give a new --output, or --force"),
        (tmp_path / "none", "does not exist"),
        (finished / "documents", "it is part of the run in"),
        (finished.parent / "a.jsonl", "is a file"),
    ):
        with pytest.raises(OutputError, match=message):
            curation.run_documents(folder)


def test_no_code_that_a_recipe_names_is_imported(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    copy = Path(shutil.copytree(finished, tmp_path / "copy"))
    content = json.loads((copy / "report.json").read_bytes())
    content["recipe"]["stages"][1] = {"kind": "hostile:Stage", "name": "exact_dedup"}
    content["digest"] = digest(content)
    (copy / "report.json").write_bytes(as_json(content, indent=True))
    (tmp_path / "hostile.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert len(curation.run_documents(copy, "pairs")) == 2


def test_a_large_document_is_shown_in_part():
    text = "word " * 20_000_000
    spans = broken_spans(next(rule for rule in GOPHER_REPETITION if rule.name == "top_2gram"), text)
    assert spans and spans[-1][1] <= 200_000
    assert len(excerpt(text, spans, 1_000)[0]) == 1_000


@pytest.mark.parametrize(
    ("rule", "text", "parts"),
    [
        (Rule(ratio=("top_2gram_characters", "characters"), max=0.2), "a b x a b y", ["a b", "a b"]),
        (Rule(ratio=("duplicate_5gram_characters", "characters"), max=0.1), "a b c d e a b c d e", ["a b c d e"]),
        (Rule(ratio=("duplicate_lines", "text_lines"), max=0.1), "x\ny\nx", ["x"]),
        (Rule(ratio=("duplicate_paragraphs", "paragraphs"), max=0.1), "x\ny\n\nz\n\nx\ny", ["x\ny"]),
        (
            Rule(ratio=("duplicate_prose_line_characters", "prose_line_characters"), max=0.1),
            "one\n```py\none\n```\n}\n}\none\n~~~\none",
            ["one", "one"],
        ),
        (Rule(ratio=("ellipsis_lines", "lines"), max=0.1), "x...\ny", ["x..."]),
        (Rule(ratio=("hash_signs", "words"), max=0.1), "# a", ["#"]),
        (Rule(measure="words", min=5), "a b", []),
        (Rule(matches="(?m)^a+", max_count=0), "aa\nba", ["aa"]),
    ],
)
def test_marks_are_the_parts_that_a_rule_counts(rule: Rule, text: str, parts: list[str]):
    assert [text[start:stop] for start, stop in broken_spans(rule, text)] == parts


def test_an_excerpt_begins_before_the_first_mark():
    assert excerpt("x" * 100 + "bad", [(100, 103)], 20) == ("x" * 5 + "bad", [(5, 8)], 95)


def test_a_wrong_rule_is_refused_in_python(finished: Path):
    with pytest.raises(RecipeError, match=r"^where: .*max: -1 removes everything"):
        curation.run_documents(finished, where="words: {max: -1}")
    with pytest.raises(OutputError, match="no documents are 'edits'"):
        curation.run_documents(finished, "edits")


@pytest.mark.parametrize("end", ["a.jsonl", "./{folder}/a.jsonl", "{folder}/a.jsonl"])
def test_a_file_is_found_by_the_end_of_its_path(finished: Path, capsys: pytest.CaptureFixture[str], end: str):
    value = end.format(folder=finished.parent.name)
    everything = shown(capsys, finished, "--where", f"file={finished.parent / 'a.jsonl'}")
    assert shown(capsys, finished, "--where", f"file={value}") == everything and "lorem" in everything


@pytest.mark.parametrize(
    ("where", "end"),
    [
        ("file=b.jsonl", "did you mean a.jsonl?"),
        ("file=.jsonl", "did you mean a.jsonl?"),  # no end of a path from a folder on
        ("reason=lorm", "did you mean lorem?"),
        ("reason=zzz", "; expected one of short, "),
        ("words: {max: 0}", "fits; kept documents are shown by --what kept\n"),  # another rule than COLUMN=VALUE
    ],
)
def test_a_value_that_no_document_has_brings_a_near_one(
    finished: Path, capsys: pytest.CaptureFixture[str], where: str, end: str
):
    out = shown(capsys, finished, "--where", where)
    assert out.startswith("no removed document") and end in out
