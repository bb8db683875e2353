# SPDX-License-Identifier: Apache-2.0
"""`curate init`: what it writes is the default recipe, explained, and runs as it is on files of any format."""

import bz2
import gzip
import json
import lzma
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import yaml

from curation.base.errors import InputError
from curation.cli import main
from curation.frames.frames import apply
from curation.reading.archive_ends import fault_at_end
from curation.reading.formats import base
from curation.reading.inputs import Input
from curation.reading.paths import find_files
from curation.reading.source_files import SourceFile
from curation.recipes.file_facts import likeliest
from curation.recipes.recipe import convert_recipe, load_recipe
from curation.recipes.starter import COMMENTS, EXAMPLE, starting_recipe
from curation.recipes.survey import InputSurvey, survey
from curation.stages import Rewrite
from tests.runs import made_texts, records_of, report_of

STORY = "a story of several words, which is longer than its title"
TABLE = {"title": ["one", "two"], "story": [STORY, STORY.upper()], "pages": [1, 2]}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made.jsonl").write_bytes(records_of(made_texts(80)))
    return tmp_path


def input_of(*paths: str, **settings: Any) -> list[dict[str, Any]]:
    surveyed = survey([Input(path=path, **settings) for path in paths])
    return yaml.safe_load(starting_recipe(surveyed, "recipe.yaml"))["input"]


def test_the_written_recipe_runs_as_it_is(capsys: pytest.CaptureFixture[str]):
    Path("a folder").mkdir()
    for name in ("x", "y"):
        Path(f"a folder/{name}.jsonl").write_bytes(records_of([f"{name} {text}" for text in made_texts(9)]))
    assert main(["init", "made.jsonl", "a folder"]) == 0
    assert capsys.readouterr().out.endswith("Next: curate plan recipe.yaml\n      curate run recipe.yaml -o out\n")
    assert main(["run", "recipe.yaml", "-o", "out", "--allow-empty"]) == 0
    report = report_of(Path("out"))
    assert report["documents"]["read"] == 98
    assert main(["run", "-i", "made.jsonl", "a folder", "-o", "default", "--allow-empty"]) == 0
    assert report_of(Path("default"))["documents_digest"] == report["documents_digest"]
    written = Path("recipe.yaml").read_bytes()
    assert main(["init", "made.jsonl"]) == 2 and Path("recipe.yaml").read_bytes() == written
    assert main(["init", "made.jsonl", "--force"]) == 0 and Path("recipe.yaml").read_bytes() != written


def test_it_has_the_stages_of_the_default_recipe_each_with_a_comment():
    text = starting_recipe(InputSurvey([], {}), "mine.yaml")
    recipe, default = convert_recipe(yaml.safe_load(text)), load_recipe("default")
    for name in ("words", "stages", "tokenizer", "output"):
        assert getattr(recipe, name) == getattr(default, name)
    assert recipe.input[0].path == EXAMPLE and "curate run mine.yaml -o out" in text
    lines = text.splitlines()
    settings = [number for number, line in enumerate(lines) if re.match(r"  - {kind|\w+: {|input:|words:", line)]
    assert len(settings) == len(default.stages) + 4
    assert all(lines[number - 1].lstrip().startswith("# ") for number in settings)
    others = {"input", "words", "tokenizer", "output"}
    assert {*COMMENTS} == {stage.__struct_config__.tag for stage in default.stages} | others


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv", "t.tsv", "t.parquet", "t.arrow", "t.jsonl.gz"])
def test_the_text_column_is_the_longest_text_where_none_has_a_usual_name(name: str):
    table = pa.table(TABLE)
    if name == "t.parquet":
        pq.write_table(table, name)
    elif name == "t.arrow":
        pyarrow.feather.write_feather(table, name)
    elif name.startswith("t.jsonl"):
        frame = table.to_pandas()
        frame.to_json(name, orient="records", lines=True)
    else:
        table.to_pandas().to_csv(name, index=False, sep="\t" if name == "t.tsv" else ",")
    assert input_of(name) == [{"path": name, "text_column": "story"}]


def test_usual_names_and_given_ones_win(here: Path):
    Path("c.jsonl").write_text(f'{{"content": "short", "story": "{STORY}"}}\n')
    assert input_of("c.jsonl") == [{"path": "c.jsonl", "text_column": "content"}]
    Path("d.jsonl").write_text(f'{{"description": "{"d" * 30}", "plot": "{"d" * 400}", "html": "{"d" * 9000}"}}\n')
    assert input_of("d.jsonl") == [{"path": "d.jsonl", "text_column": "plot"}]  # a short description is no text
    Path("d.jsonl").unlink()
    assert input_of("c.jsonl", text_column="story") == [{"path": "c.jsonl", "text_column": "story"}]
    Path("c.jsonl").write_text(
        "".join(f'{{"text": "{STORY}", "ID": 1, "doc_id": {n}, "uuid": "u{n}"}}\n' for n in (7, 8))
    )
    ids = {"path": "c.jsonl", "text_column": "text", "id_column": "doc_id"}
    assert input_of("c.jsonl") == input_of("c.jsonl", text_column="text") == [ids]
    with Path("c.jsonl").open("a") as file:
        file.write(f'{{"text": "{STORY}", "doc_id": 7, "uuid": null}}\n')
    assert input_of("c.jsonl") == [{"path": "c.jsonl", "text_column": "text"}]  # none has a different value each time
    Path("c.jsonl").write_text(f'{{"text": "{STORY}", "id": 1, "doc_id": 2}}\n')
    assert input_of("c.jsonl") == [{"path": "c.jsonl", "text_column": "text"}]
    Path("c.jsonl").write_text(f'{{"content": "short", "story": "{STORY}"}}\n')
    assert input_of(".") == [{"path": "."}]  # files of two columns: each is looked at when it is read


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b'\n{"text": "x"}\n', {"format": "jsonl", "text_column": "text"}),
        (b"plain words\n", {"format": "text"}),
        (b"<!DOCTYPE html>\n<p>words", {"format": "html"}),
    ],
)
def test_the_format_is_told_by_the_first_bytes_where_the_name_does_not(head: bytes, expected: dict[str, str]):
    Path("words.data").write_bytes(head)
    assert input_of("words.data") == [{"path": "words.data", **expected}]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"n": 1}\n', "has none of the columns text"),
        (b'[{"text": "x"},\n{"text": "y"}]\n', "begins with a JSON array"),
    ],
)
def test_files_without_text_are_refused(content: bytes, told: str):
    Path("wrong.jsonl").write_bytes(content)
    with pytest.raises(InputError, match=told):
        input_of("wrong.jsonl")


@pytest.mark.parametrize(
    ("lengths", "usual", "expected"),
    [
        ({"text": 900.0, "html": 20_000.0}, "text", "text"),
        ({"description": 40.0, "story": 900.0}, "description", "story"),
        ({"description": 400.0, "story": 900.0}, "description", "description"),
        ({"full_text": 500.0, "comment": 900.0}, "", "full_text"),
        ({"text_type": 4.0, "comment": 900.0}, "", "comment"),
        ({"comment": 300.0, "page_html": 900.0}, "", "comment"),
        ({"page_html": 900.0}, "", "page_html"),
    ],
)
def test_the_likeliest_column_is_chosen_by_name_and_length(lengths: dict[str, float], usual: str, expected: str):
    assert likeliest(lengths, usual) == expected


def write_mixed_folder(data: Path) -> None:
    """Files of many formats and encodings, some in folders, and files that no input can read."""
    (data / "deep" / "er").mkdir(parents=True)
    for number in range(3):
        (data / f"x{number}.jsonl").write_text(f'{{"body": "{number} {STORY}"}}\n')
        (data / "deep" / f"y{number}.jsonl.gz").write_bytes(
            gzip.compress(f'{{"story": "{number} {STORY}"}}\n'.encode())
        )
        (data / f"n{number}.txt").write_text(f"{number} {STORY}")
    pq.write_table(pa.table(TABLE), data / "deep" / "er" / "p.parquet")
    (data / "latin.csv").write_bytes(f'id,review\n1,"{STORY} café déjà"\n'.encode("latin-1"))
    (data / "deep" / "utf8.csv").write_text(f'id,review\n1,"{STORY} café déjà"\n')
    (data / "wide.tsv").write_text(f"id\tcontent\n1\t{STORY}\n", "utf-16")
    wet = b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello\r\n\r\n"
    (data / "deep" / "c.warc.wet.gz").write_bytes(gzip.compress(wet))
    (data / "notes.pdf").write_text("x")
    (data / "meta.jsonl").write_text('{"n": 1}\n')
    (data / "_hidden.jsonl").write_text('{"body": "hidden"}\n')


def test_a_mixed_folder_has_an_input_per_format_and_its_recipe_runs(capsys: pytest.CaptureFixture[str]):
    write_mixed_folder(Path("data"))
    assert main(["init", "data"]) == 0
    told = capsys.readouterr().out
    text = Path("recipe.yaml").read_text("utf-8")
    found = {entry.pop("path"): entry for entry in yaml.safe_load(text)["input"]}
    assert found == {
        "data/x*.jsonl": {"name": "data-jsonl", "text_column": "body"},
        "data/deep/*.jsonl.gz": {"name": "data-jsonl-2", "text_column": "story"},
        "data/*.txt": {"name": "data-text"},
        "data/deep/er/p.parquet": {"text_column": "story"},
        "data/latin.csv": {"text_column": "review", "encoding": "latin-1"},
        "data/deep/utf8.csv": {"text_column": "review"},
        "data/wide.tsv": {"text_column": "content", "encoding": "utf-16"},
        "data/deep/c.warc.wet.gz": {"columns": ["url"]},
    }
    assert "encoding: latin-1 is a guess" in text and "#   data/notes.pdf: unknown format" in text
    assert "#   data/meta.jsonl: " in text and "not read: 1 file .jsonl (9 bytes), data/meta.jsonl: it has none" in told
    assert "#   data/_hidden.jsonl: its name or folder begins with _ or ." in text
    assert main(["plan", "recipe.yaml"]) == 0
    settings = ["--set", "stages=[]", "--set", "output.formats=[]"]
    assert main(["run", "recipe.yaml", "-o", "out", *settings]) == 0
    report = report_of(Path("out"))
    assert (report["documents"]["kept"], report["documents"]["rejected"]) == (3 * 3 + 2 + 3 + 1, 0)
    texts = set(pq.read_table("out/documents").column("text").to_pylist())
    assert f"{STORY} café déjà" in texts and STORY in texts and "hello" in texts


def test_folders_of_one_format_are_one_input_whatever_their_compression(here: Path):
    Path("data/sub").mkdir(parents=True)
    Path("data/a.jsonl").write_text(f'{{"story": "{STORY}"}}\n')
    Path("data/sub/b.jsonl.gz").write_bytes(gzip.compress(f'{{"story": "{STORY}"}}\n'.encode()))
    Path("data/README").write_text("x")
    with patch.object(base, "open_stream", wraps=base.open_stream) as opened:
        assert input_of("data") == [{"path": "data", "text_column": "story"}]
    assert [call.args[0] for call in opened.call_args_list] == [
        str(here / "data" / name) for name in ("a.jsonl", "sub/b.jsonl.gz")
    ]
    assert input_of("data/*") == [{"path": "data/a.jsonl", "text_column": "story"}]  # a run refuses README here
    assert survey([Input(path="data")]).unused == {"data/README": "unknown format"}


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        ("naïve café\n".encode(), ""),
        (b"plain\n", ""),
        ("F\ufffdd\ufffdrale.\n".encode(), ""),  # valid UTF-8, from characters that another program has lost
        ("F\ufffdd\ufffdrale.\n".encode() + b"\xe9t\xe9, fid\xe8le, \xe0 l'\xe9glise\n", "latin-1"),
        ("naïve café ".encode() * 9 + b"\xe9 fault\n", ""),  # UTF-8 with a fault is not Latin-1
        ("naïve café\n".encode("latin-1"), "latin-1"),
        ("a \u201cquote\u201d\n".encode("cp1252"), "cp1252"),
        ("naïve café\n".encode("utf-16"), "utf-16"),
        ("naïve café\n".encode("utf-32"), "utf-32"),
        ("naive cafe\n".encode("utf-16-le"), "utf-16-le"),
        ("漢字かな\n".encode(), ""),
        ("这是一个用于测试的中文文本，里面有常见的汉字和标点符号。\n".encode("gb18030"), "gb18030"),
        (
            "これは日本語の文章です。文字コードの検査に使います。\n".encode("shift_jis") * 3000,
            "cp932",
        ),  # cut off in a character
        ("Привет, мир! Это обычный русский текст для проверки.\n".encode("cp1251"), "cp1251"),
        ("Eine schöne Straße, über den Fluß führt keine Brücke.\n".encode("latin-1") * 20, "latin-1"),
    ],
)
def test_the_encoding_of_text_is_guessed_only_where_it_is_not_utf_8(data: bytes, encoding: str):
    Path("t.txt").write_bytes(data)
    assert input_of("t.txt") == [{"path": "t.txt"} | ({"encoding": encoding} if encoding else {})]


REVIEW = "Sehr gut, aber teuer; nicht noch einmal."
FORMS = {  # name, content -> settings that the file needs
    "semicolons": ("a.csv", ";".join(["id", "review"]) + f'\n1;"{REVIEW}"\n2;"{REVIEW}"\n', {"delimiter": ";"}),
    "commas in semicolons": ("a.csv", "id;price;review\n" + "1;2,50;gut, ja\n" * 9, {"delimiter": ";"}),
    "commas in the header": ("a.csv", "id;review, in words\n1;gut\n2;ja, gut\n", {"delimiter": ";"}),
    "semicolons in commas": ("a.csv", f'id,review\n1,"{REVIEW}"\n2,ja; gut\n', {}),
    "both would do": ("a.csv", "id,lang;review\n1,de;gut\n2,de;ja\n", {}),
    "tabs": ("a.csv", "id\treview\n1\tgut, ja\n", {"delimiter": "\t"}),
    "bars and bad rows": ("a.csv", "id|review\n" + "1|gut, ja\n" * 9 + "2\n2|a|b\n", {"delimiter": "|"}),
    "commas in a TSV": ("a.tsv", "id,review\n1,gut\n", {"delimiter": ","}),
    "single quotes": ("a.csv", "id;review\n1;'gut; ja\nja'\n2;'nein; nie'\n", {"delimiter": ";", "quote": "'"}),
    "no quotes": ("a.tsv", 'id\treview\n1\t"Gut" ja\n2\t"Nein, nie\n3\tIn 5" Schnee\n', {"quote": ""}),
    "an unclosed quote": ("a.csv", 'id;review\n1;"gut"\n2;"ja\n3;"nein"\n4;"a"\n', {"delimiter": ";"}),
    "one column": ("a.csv", "review\nJa; gut.\nNein; nie. Ja; gut.\n", {}),
    "no rows": ("a.csv", "id;review\n", {"delimiter": ";"}),
    "a long last row": ("a.csv", 'id;review\n1;gut\n2;"' + "Zeile; eins\n" * 90_000 + '"\n', {"delimiter": ";"}),
}


@pytest.mark.parametrize("case", FORMS)
def test_delimiters_and_quotes_are_detected(case: str):
    name, content, settings = FORMS[case]
    Path(name).write_text(content)
    column = {"text_column": next(word for word in ("review, in words", "lang;review", "review") if word in content)}
    assert input_of(name, **column) == [{"path": name, **column, **settings}]


def test_a_csv_with_semicolons_keeps_its_reviews(capsys: pytest.CaptureFixture[str]):
    """Each has a line end and commas: read with commas, the ten reviews are many records."""
    text = f"{REVIEW}\nNoch eine Zeile, nicht gut."
    Path("reviews.csv").write_text("id;text\n" + "".join(f'{number};"{text}"\n' for number in range(10)))
    Path("more.csv").write_text("id,text\n1,words\n")
    assert main(["init", "reviews.csv", "more.csv"]) == 0
    assert yaml.safe_load(Path("recipe.yaml").read_text())["input"] == [
        {"path": "reviews.csv", "text_column": "text", "delimiter": ";"}, {"path": "more.csv", "text_column": "text"}
    ]  # fmt: skip
    command = ["run", "recipe.yaml", "-o", "out", "--set", "stages=[]", "--set", "output.formats=[]"]
    assert main(command) == 0
    assert pq.read_table("out/documents").column("text").to_pylist() == [text] * 10 + ["words"]
    assert main([*command, "--set", "input.reviews.quote=''"]) == 2
    assert "belongs to another recipe or input; changed: input[0].quote" in capsys.readouterr().err


GOOD = f'{{"text": "{STORY}"}}\n'
ALIKE = {  # other files, names of four alike ones -> path of their input
    "[abcd].jsonl": ({"meta.jsonl": '{"n": 1}\n'}, [f"{name}.jsonl" for name in "abcd"]),
    "part-*.jsonl": ({"meta.jsonl": '{"n": 1}\n'}, [f"part-{number}.jsonl" for number in range(4)]),
    "**/part-0*.jsonl": ({"y/m.jsonl": '{"n": 1}\n'}, [f"{name}/part-0.jsonl" for name in "wxyz"]),
    "**/*.jsonl*": ({"n.txt": "x"}, ["a.jsonl", "x/b.jsonl.gz", "x/c.jsonl", "d.jsonl"]),
    "*.jsonl": ({"n.txt": "x", "t.csv": f"id,review\n1,{STORY}\n"}, [f"{name}.jsonl" for name in "abcd"]),
    "@recipe.data-jsonl.list": ({"m.jsonl": '{"n": 1}\n'}, ["one.jsonl", "two.jsonl", "x/three.jsonl", "four.JSONL"]),
}


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" and isinstance(content, str) else data)


@pytest.mark.parametrize("expected", ALIKE)
def test_four_alike_files_are_one_input_beside_others(expected: str):
    others, alike = ALIKE[expected]
    for name, content in others.items() | {(name, GOOD) for name in alike}:
        write(Path("data") / name, content)
    surveyed = survey([Input(path="data")])
    [found] = [each for each in surveyed.inputs if each.facts[0].column == "text"]
    assert found.files == 4 and found.settings["path"] == (expected if expected[0] == "@" else f"data/{expected}")
    assert sorted(found.listed) == (sorted(f"data/{name}" for name in alike) if expected[0] == "@" else [])


def test_files_with_the_same_columns_have_one_text_column():
    """Each file alone would have another one, or none that looks like text."""
    for number in range(4):
        record = f'{{"question": "{"q" * (10 * number + 5)}", "answer": "{"a" * (90 - 22 * number)}"}}\n'
        write(Path(f"data/{number}.jsonl"), record)
    assert input_of("data") == [{"path": "data", "text_column": "answer"}]


DAMAGED: dict[str, tuple[bytes, str, str]] = {  # name -> content, what a run reads of it, reason
    "cut.jsonl.gz": (gzip.compress(GOOD.encode() * 20_000, 1)[:-40], "part", "damaged or cut off: it ends inside"),
    "head.jsonl.gz": (
        gzip.compress(GOOD.encode())[:12],
        "nothing",
        "head.jsonl.gz can be read: the file is damaged or cut off",
    ),
    "bad.jsonl": (
        b"{no json\n" + GOOD.encode() * 2,
        "part",
        "1 of its first 3 lines are no JSON objects; a run rejects",
    ),
    "empty.jsonl": (b"", "part", "the file is empty"),
    "wrong.jsonl": (b"PAR1" + bytes(range(256)), "nothing", "its content is Parquet. Rename it to wrong.parquet"),
    "packed.jsonl": (gzip.compress(GOOD.encode()), "nothing", "its content is gzip. Rename it to packed.jsonl.gz"),
    "binary.csv": (bytes(range(256)) * 9, "nothing", "looks like binary data, expected text"),
    "scan.txt": (b"%PDF-1.4\n" + bytes(range(256)) * 9, "nothing", "its content is a PDF document"),
}


def test_broken_files_are_named_and_spoil_no_group(capsys: pytest.CaptureFixture[str]):
    for name in ("one.jsonl", "two.jsonl", "three.jsonl.gz", "words.txt"):
        write(Path("data") / name, STORY if name == "words.txt" else GOOD)
    write(Path("data/table.csv"), f'id,text\n1,"{STORY}"\n')
    for name, (content, _, _) in DAMAGED.items():
        write(Path("data") / name, content)
    surveyed = survey([Input(path="data")])
    for name, (_, read, reason) in DAMAGED.items():
        assert reason in (surveyed.faults if read == "part" else surveyed.unused)[f"data/{name}"]
    assert len(surveyed.faults) + len(surveyed.unused) == len(DAMAGED)
    assert [found.files for found in surveyed.inputs] == [6, 1, 1]
    assert main(["init", "data"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert any(
        line.startswith("not read: 1 file .gz (12 bytes), data/head.jsonl.gz: nothing in it can") for line in told
    )
    assert told[5:7] == [
        "and for 3 more reasons, which the recipe has",
        "recipe.yaml: 3 inputs, the stages of the default recipe",
    ]
    assert "# Read in part: 3 paths" in Path("recipe.yaml").read_text()
    assert main(["run", "recipe.yaml", "-o", "out", "--set", "stages=[]", "--set", "output.formats=[]"]) == 0
    report = report_of(Path("out"))["documents"]
    assert report["rejected"] == 3 and report["kept"] > 5
    Path("recipe.yaml").unlink()
    assert main(["init", "data"]) == 0  # as after a kill: the list has this content
    Path("recipe.yaml").unlink()
    Path("recipe.data-jsonl.list").write_text("mine\n")
    assert main(["init", "data"]) == 2 and "recipe.data-jsonl.list exists already" in capsys.readouterr().err


def test_files_that_are_not_probed_are_still_looked_at(capsys: pytest.CaptureFixture[str]):
    """Of 120 files, each third is probed: none of those with a number of 1, 4, 7, ... is."""
    for number in range(120):
        write(Path(f"data/{number:03}.txt"), f"{STORY} {number} für uns")
        write(Path(f"data/{number:03}.jsonl"), GOOD)
    others = {
        "001.txt": b"%PDF-1.4\n" + bytes(range(256)), "004.txt": gzip.compress(STORY.encode()),
        "007.txt": f"{STORY} Größe und Übung".encode("latin-1"), "010.txt": b"", "013.txt": b"", "016.txt": b"",
        "001.jsonl": b'[{"text": "a"}]', "004.jsonl": b'{"story": "a story of some words", "n": 1}\n' * 3,
        "007.jsonl": b"{no json\n" + GOOD.encode(),
    }  # fmt: skip
    for name, content in others.items():
        Path("data", name).write_bytes(content)
    Path("data/019.txt").unlink()
    Path("data/019.txt").symlink_to("gone.txt")
    assert main(["init", "data"]) == 0
    told, text = capsys.readouterr().out, Path("recipe.yaml").read_text()
    assert "data/019.txt: it is a broken link: gone.txt does not exist" in told
    assert "data/010.txt, data/013.txt, data/016.txt: the file is empty" in text
    for reason in (
        "its content is a PDF document",
        "its content is gzip",
        "begins with a JSON array",
        "are no JSON obj",
    ):
        assert reason in text
    inputs = yaml.safe_load(text)["input"]
    assert {"path": "data/007.txt", "encoding": "latin-1"} in inputs
    assert {"path": "data/004.jsonl", "text_column": "story"} in inputs
    assert main(["run", "recipe.yaml", "-o", "out", "--set", "stages=[]", "--set", "output.formats=[]"]) == 0
    assert any("Größe und Übung" in row for row in pq.read_table("out/documents").column("text").to_pylist())


@pytest.mark.parametrize("is_most", [True, False])
def test_the_encoding_of_a_file_does_not_depend_on_others(is_most: bool):
    for number in range(120):
        is_latin = is_most != (number % 3 == 1)
        write(Path(f"data/{number:03}.txt"), f"{STORY} für uns {number}".encode("latin-1" if is_latin else "utf-8"))
    surveyed = survey([Input(path="data")])
    found = {found.settings.get("encoding", "utf-8"): found.files for found in surveyed.inputs}
    assert found == ({"latin-1": 80, "utf-8": 40} if is_most else {"latin-1": 40, "utf-8": 80})


def test_all_files_that_cannot_be_read_are_in_one_message(capsys: pytest.CaptureFixture[str]):
    for number in range(5):
        write(Path(f"data/{number}.txt"), b"%PDF-1.4\n" + bytes(range(256)))
    write(Path("data/good.txt"), STORY)
    for command in (["plan", "default", "-i", "data"], ["run", "default", "-i", "data", "-o", "out"]):
        assert main(command) == 2
        err = capsys.readouterr().err
        assert (
            "5 files cannot be read: (1) " in err and "2.txt is read as text" in err and err.endswith("; and 2 more\n")
        )


def test_a_link_to_another_file_of_the_folder_is_left_out(capsys: pytest.CaptureFixture[str]):
    write(Path("data/git.txt"), STORY)
    write(Path("data/plain.txt"), STORY * 2)
    Path("data/a.txt").symlink_to("git.txt")  # links sort before and after their file
    Path("data/sub").mkdir()
    Path("data/sub/z.txt").symlink_to("../git.txt")
    assert main(["init", "data"]) == 0
    assert "data/a.txt and others: it is a link to data/git.txt, which is read" in capsys.readouterr().out
    assert "data/sub/z.txt is a link to data/git.txt, which is read" in Path("recipe.yaml").read_text()
    assert main(["run", "recipe.yaml", "-o", "out", "--set", "stages=[]", "--set", "output.formats=[]"]) == 0
    assert pq.read_table("out/documents").num_rows == 2


def test_a_missing_file_and_a_broken_link_are_named_with_their_list(capsys: pytest.CaptureFixture[str]):
    write(Path("data/a.txt"), STORY)
    Path("data/b.txt").symlink_to("gone.txt")
    assert main(["plan", "default", "-i", "data"]) == 2
    assert (
        "data/b.txt is a broken link: gone.txt does not exist. Replace the link, or delete" in capsys.readouterr().err
    )
    Path("files.list").write_text("data/a.txt\ndata/c.txt\n")
    assert main(["plan", "default", "-i", "@files.list"]) == 2
    err = capsys.readouterr().err
    assert "input data/c.txt does not exist" in err and "The list files.list names it" in err


def test_errors_in_the_call_come_before_a_recipe_that_is_there(capsys: pytest.CaptureFixture[str]):
    Path("recipe.yaml").write_text("mine")
    for words, reason in {
        (): "init has no input; expected the files, folders, globs or URLs to read: curate init PATH -o recipe.yaml",
        ("-o", "q.yaml"): "curate init PATH -o q.yaml",
        ("mad.jsonl",): "input mad.jsonl does not exist",
        (
            "made.jsonl",
            "other.yaml",
        ): "init would read other.yaml as an input. To write the recipe to it: -o other.yaml",
        ("made.jsonl",): "recipe.yaml exists already",
    }.items():
        assert main(["init", *words]) == 2
        assert reason in capsys.readouterr().err
    assert Path("recipe.yaml").read_text() == "mine" and not Path("q.yaml").exists()


def test_the_recipe_says_why_folders_are_inputs_and_has_the_other_form():
    """The other form needs lists of files here."""
    for name in "ab":
        write(Path(f"d/{name}/x.txt"), CODE if name == "a" else STORY)
        write(Path(f"d/{name}/y.txt"), "größer".encode("latin-1") * 9)
    assert main(["init", "d"]) == 0
    text = Path("recipe.yaml").read_text()
    assert "Folders are inputs of their own, because they differ in format, text column or kind of text." in text
    form = text[text.index("As one input for each format:") :].splitlines()[1:3]
    paths = [yaml.safe_load(line.removeprefix("  # - "))["path"] for line in form]
    assert all(Path(path.removeprefix("@")).is_file() or list(Path().glob(path)) for path in paths), paths
    for number in range(9):
        write(Path(f"e/{number}/x.{'txt' if number else 'jsonl'}"), GOOD)
    text = starting_recipe(survey([Input(path="e")]), "recipe.yaml")
    assert "Folders are no inputs of their own, because there are 9, more than 8." in text


def test_an_archive_that_lacks_its_end_is_noticed():
    compressors = {"gzip": gzip.compress, "zstd": pa.Codec("zstd").compress, "bzip2": bz2.compress, "xz": lzma.compress}
    for compression, compress in compressors.items():
        data = bytes(compress(GOOD.encode() * 40))
        for content, fault in ((data, ""), (data * 2 + bytes(8), ""), (data[:-3], "cut off: it ends inside the")):
            content = content.rstrip(b"\0") if compression == "zstd" else content  # its frames have no padding
            Path("a").write_bytes(content)
            file = SourceFile(path="a", source="a", format="jsonl", compression=compression, bytes=len(content),
                              modified_ns=0)  # fmt: skip
            expected = fault.replace("cut off: it ends inside the", "cut off: ") if compression == "zstd" else fault
            assert expected in fault_at_end(file, 999) and bool(fault) == bool(fault_at_end(file, 999))
            assert bool(fault_at_end(file, 9)) == bool(fault and compression in ("bzip2", "xz"))


LINES = "The whale is a large mammal that lives in the sea and sings songs to its\nkind, every day of the year.\n" * 5
LINES = LINES.replace("year.", "year, in winter and in summer, as long as it lives.")
CODE = "import os\n\ndef size(path):\n    if path:\n        return os.stat(path).st_size\n"
TREES: dict[str, tuple[dict[str, str], list[dict[str, Any]], list[str]]] = {  # files -> inputs, comments
    "folders of other formats": (
        {"d/a/x.jsonl": GOOD, "d/b/x.txt": STORY, "d/c 1/x.jsonl": GOOD, "d/c 1/y.txt": STORY,
         "d/z.csv": f"text\n{STORY}\n"},
        [{"path": "d/z.csv", "text_column": "text"}, {"path": "d/a", "name": "a", "text_column": "text"},
         {"path": "d/b", "name": "b"}, {"path": "d/c 1/x.jsonl", "name": "c-1-jsonl", "text_column": "text"},
         {"path": "d/c 1/y.txt", "name": "c-1-text"}],
        ["As one input for each format:", "- {path: d/**/*.jsonl, name: d-jsonl, text_column: text}"],
    ),
    "folders of other columns": (
        {"d/1/x.jsonl": GOOD, "d/2/x.jsonl": GOOD.replace("text", "body"), "d/2/x.bin": "x"},
        [{"path": "d/1", "name": "input-1", "text_column": "text"},
         {"path": "d/2", "name": "input-2", "text_column": "body"}],
        ["As one input for each format:", "- {path: d}"],
    ),
    "folders of prose and code": (
        {"d/a/x.txt": STORY, "d/b/x.txt": CODE},
        [{"path": "d/a", "name": "a"}, {"path": "d/b", "name": "b"}],
        ["1 of 1 probed text looks like source code"],
    ),
    "folders that are alike": (
        {f"d/{name}/x.jsonl": GOOD for name in "ab"},
        [{"path": "d", "text_column": "text"}],
        ["An input for each folder, ready for blends:", "- {path: d/b, name: b, text_column: text}"],
    ),
    "nine folders": (
        {f"d/{n}{n}x/x.{'txt' if n else 'jsonl'}": GOOD for n in range(9)},
        [{"path": "d/00x/x.jsonl", "text_column": "text"}, {"path": "d/**/*.txt", "name": "d-text"}],
        ["An input for each folder, ready for blends:", "- {path: d/88x, name: 88x}"],
    ),
    "wrapped lines": (
        {"d/x.txt": LINES, "d/y.txt": STORY},
        [{"path": "d"}],
        ["1 of 2 probed texts may have wrapped lines. To join the", "- {kind: rewrite, name: join_lines, "],
    ),
    "source code": (
        {"d/x.py": CODE, "d/e/y.py": CODE * 2, "d/z.C": CODE * 3, "d/.git/x.json": "{}"},
        [{"path": "d/**/*.py", "format": "text", "name": "d-py"},
         {"path": "d/**/*.C", "format": "text", "name": "d-C"}],
        ["source code: lines of at most 1,000 characters"],
    ),
    "source code with prose": (
        {"d/x.py": CODE, "d/README.md": STORY},
        [{"path": "d"}],
        ["1 file of source code not read, 1 of them d/**/*.py", "prose: curate init 'd/**/*.py' -o code.yaml"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TREES)
def test_folders_that_differ_are_inputs_and_kinds_of_text_are_named(case: str):
    files, inputs, comments = TREES[case]
    for name, content in files.items():
        write(Path(name), content)
    text = starting_recipe(survey([Input(path="d")]), "recipe.yaml")
    recipe = convert_recipe(yaml.safe_load(text))
    assert yaml.safe_load(text)["input"] == inputs
    assert all(comment in text for comment in comments), text
    assert len(find_files(recipe.input)) == sum(not name.endswith((".bin", ".git/x.json")) for name in files) - (
        case == "source code with prose"
    )
    assert (recipe.stages == load_recipe("default").stages) == (case != "source code")


PAGE = "<div><h2>Head</h2><p class='x'>One &amp; two.</p><p>a &lt; b</p><ul><li>x<li>y</ul><script>f()</script></div>"


def test_a_stage_deletes_tags_where_texts_are_full_of_them():
    Path("pages.jsonl").write_text("".join(json.dumps({"text": PAGE}) + "\n" for _ in range(9)))
    text = starting_recipe(survey([Input(path="pages.jsonl"), Input(path="made.jsonl")]), "recipe.yaml")
    assert "  # 9 of 9 probed texts have tags of HTML: deletes tags of all inputs" in text
    assert "  # 9 of 9 probed texts have tags of HTML\n" in text
    html, rewrite, *others = convert_recipe(yaml.safe_load(text)).stages
    assert [rewrite, *others] == [Rewrite(unicode="nfc", entities="decode"), *load_recipe("default").stages[1:]]
    texts = pd.Series([PAGE, "if a < b and c > d", "<td>1</td><td>2</td><br/>3"])
    for stage in (html, rewrite):
        texts = apply(texts, stage)
    assert texts.tolist() == ["Head\nOne & two.\na < b\n\nx\ny\n\n", "if a < b and c > d", "1 2 \n3"]


@pytest.mark.parametrize("pages", [0, 4])
def test_a_few_texts_with_tags_add_no_stage(pages: int):
    texts = [PAGE] * pages + [f"{STORY} a <b and c> <!-- x --> List<int> <p>"] * (9 - pages)
    Path("pages.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    text = starting_recipe(survey([Input(path="pages.jsonl")]), "recipe.yaml")
    assert convert_recipe(yaml.safe_load(text)).stages == load_recipe("default").stages
    assert ("  # 4 of 9 probed texts have tags of HTML\n" in text) == bool(pages) == ("tags of HTML" in text)


@pytest.mark.parametrize(("text", "share"), [("Привет, мир", "90%"), ("Un café au village, déjà ouvert", "")])
def test_a_comment_tells_of_text_for_which_gpt2_needs_many_tokens(text: str, share: str):
    Path("texts.jsonl").write_bytes(records_of([text]))
    told = re.findall(
        r"# (\d+%) of the bytes .* not ASCII.*\ntokenizer:", starting_recipe(survey([Input(path="texts.jsonl")]), "x")
    )
    assert told == [share] * bool(share)


def test_unreadable_files_of_one_suffix_do_not_hide_the_others():
    Path("data").mkdir()
    for number in range(60):
        Path(f"data/{number}.jsonl.gz").write_bytes(b"no gzip")
    Path("data/a.jsonl").write_text(f'{{"story": "{STORY}"}}\n')
    surveyed = survey([Input(path="data")])
    assert [found.settings["path"] for found in surveyed.inputs] == ["data/a.jsonl"] and len(surveyed.unused) == 60
    unused = {f"{n}.html": "without a package" for n in range(23)} | {"b.pdf": "unknown format"}
    lines = starting_recipe(InputSurvey([], unused), "recipe.yaml").splitlines()
    start = lines.index("# Not read: 24 paths")
    assert re.fullmatch(r"#   0.html, .*, 19.html and 3 more: without a package", lines[start + 1])
    assert lines[start + 2] == "#   b.pdf: unknown format" and lines[start + 3].startswith("# files, folders")


def test_short_columns_of_files_that_nobody_named_are_no_text():
    Path("data").mkdir()
    Path("data/pairs.jsonl").write_text('{"a": "doc-00001", "b": "doc-2"}\n')
    Path("data/made.jsonl").write_text(f'{{"story": "{STORY}"}}\n')
    surveyed = survey([Input(path="data")])
    assert [found.settings["path"] for found in surveyed.inputs] == ["data/made.jsonl"]
    assert "looks like text: a, the longest, has 9 bytes" in surveyed.unused["data/pairs.jsonl"]
    assert input_of("data/pairs.jsonl") == [{"path": "data/pairs.jsonl", "text_column": "a"}]


def test_columns_with_numbers_are_listed():
    """They can be carried for rules, select and mix. CSV has text alone."""
    records = ['"score": 1.5, "flag": true, "n": null', '"score": null, "n": 3, "mixed": 1', '"mixed": "x", "id": 5']
    Path("a.jsonl").write_text("".join(f'{{"text": "{STORY}", {fields}}}\n' for fields in records))
    pq.write_table(pa.table(TABLE), "b.parquet")
    Path("c.csv").write_text("text,n\nwords,5\n")
    text = starting_recipe(survey([Input(path=name) for name in ("a.jsonl", "b.parquet", "c.csv")]), "recipe.yaml")
    lines = [line for line in text.splitlines() if "columns with numbers" in line]
    assert lines == [
        "  # columns with numbers: score, n; carry one with columns: [score] for rules, select or mix",
        "  # columns with numbers: pages; carry one with columns: [pages] for rules, select or mix",
    ]


def test_columns_with_numbers_and_reserved_or_odd_names(capsys: pytest.CaptureFixture[str]):
    Path("a.jsonl").write_text(f'{{"text": "{STORY}", "": 1, "bytes": 5, "n\\nm": 6}}\n')
    assert main(["init", "a.jsonl", "-o", "r.yaml"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if "columns with numbers" in line]
    named = "columns with numbers: bytes, n\\nm; carry one with columns: {input_bytes: bytes} for rules, select or mix"
    assert line.strip() == named


def test_names_of_files_and_columns_cannot_end_a_comment():
    Path("data").mkdir()
    Path("data/a\nstages: []\x85\u2028\ufffe.bin").write_text("x")
    Path("data/a.jsonl").write_text(f'{{"text": "{STORY}", "n\\nstages: []": 5, "t\\nstages: []": "{STORY}"}}\n')
    text = starting_recipe(survey([Input(path="data")]), "recipe\nstages: [].yaml")
    assert "#   data/a\\nstages: []\\x85\\u2028\\ufffe.bin: unknown format" in text
    assert convert_recipe(yaml.safe_load(text)).stages == load_recipe("default").stages
