# SPDX-License-Identifier: Apache-2.0
"""`curate init`: what it writes is the default recipe, explained, and runs as it is on files of any format."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import yaml

from curation.cli import main
from curation.errors import InputError
from curation.reading.inputs import Input
from curation.recipes.recipe import convert_recipe, load_recipe
from curation.recipes.starter import COMMENTS, EXAMPLE, starting_recipe
from tests.runs import made_texts, records_of, report_of

STORY = "a story of several words, which is longer than its title"
TABLE = {"title": ["one", "two"], "story": [STORY, STORY.upper()], "pages": [1, 2]}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made.jsonl").write_bytes(records_of(made_texts(80)))
    return tmp_path


def input_of(*paths: str, **settings: Any) -> list[dict[str, Any]]:
    return yaml.safe_load(starting_recipe([Input(path=path, **settings) for path in paths], "recipe.yaml"))["input"]


def test_the_written_recipe_runs_as_it_is(capsys: pytest.CaptureFixture[str]):
    Path("a folder").mkdir()
    for name in ("x", "y"):
        Path(f"a folder/{name}.jsonl").write_bytes(records_of([f"{name} {text}" for text in made_texts(9)]))
    assert main(["init", "made.jsonl", "a folder"]) == 0
    assert capsys.readouterr().out.endswith("Next: curate run recipe.yaml -o out\n")
    assert main(["run", "recipe.yaml", "-o", "out", "--allow-empty"]) == 0
    report = report_of(Path("out"))
    assert report["documents"]["read"] == 98
    assert main(["run", "-i", "made.jsonl", "a folder", "-o", "default", "--allow-empty"]) == 0
    assert report_of(Path("default"))["documents_digest"] == report["documents_digest"]
    written = Path("recipe.yaml").read_bytes()
    assert main(["init", "made.jsonl"]) == 2 and Path("recipe.yaml").read_bytes() == written
    assert main(["init", "made.jsonl", "--force"]) == 0 and Path("recipe.yaml").read_bytes() != written


def test_it_has_the_stages_of_the_default_recipe_each_with_a_comment():
    text = starting_recipe([], "mine.yaml")
    recipe, default = convert_recipe(yaml.safe_load(text)), load_recipe("default")
    assert (recipe.stages, recipe.tokenizer, recipe.output) == (default.stages, default.tokenizer, default.output)
    assert recipe.input[0].path == EXAMPLE and "curate run mine.yaml -o out" in text
    lines = text.splitlines()
    settings = [number for number, line in enumerate(lines) if re.match(r"  - {kind|\w+: {|input:", line)]
    assert len(settings) == len(default.stages) + 3
    assert all(lines[number - 1].lstrip().startswith("# ") for number in settings)
    assert {*COMMENTS} == {stage.__struct_config__.tag for stage in default.stages} | {"input", "tokenizer", "output"}


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
    assert input_of("c.jsonl", text_column="story") == [{"path": "c.jsonl", "text_column": "story"}]
    assert input_of(".") == [{"path": "."}]  # files of two columns: each is looked at when it is read


@pytest.mark.parametrize(
    ("head", "expected"),
    [(b'\n{"text": "x"}\n', {"format": "jsonl", "text_column": "text"}), (b"plain words\n", {"format": "text"})],
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
