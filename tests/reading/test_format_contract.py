# SPDX-License-Identifier: Apache-2.0
"""What every input format keeps, by an example of each. Two formats of this test keep it too, so a class and a line are
all that a format needs. Details of each format are in the other tests of this folder."""

import gzip
import io
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curation
from curation.base.contract import Rejected
from curation.base.errors import InputError
from curation.cli import main
from curation.reading import probe, read_documents
from curation.reading.changes import open_planned
from curation.reading.documents import Documents, schema_of
from curation.reading.excerpts import draw_excerpts
from curation.reading.formats import FORMATS, format_of
from curation.reading.formats.base import NEEDED, ColumnFormat, Format
from curation.reading.inputs import FilesInput, Input
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from curation.reading.source_files import FileRange, SourceFile
from curation.recipes.recipe import load_recipe
from curation.results.report.text import funnel_line
from curation.running.planning.disk import most_needed
from curation.running.planning.survey import kind_of
from tests.needs import needs
from tests.runs import kept_rows, recipe_of, rejected_rows

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["the first of four texts", "a second, with a comma", "third", "zuletzt: Größe"]
SENTENCE = "A page about whales and what they eat in winter. " * 5
PAGE = f"<html><body><p>{SENTENCE}</p></body></html>".encode()
TITLES = {"jsonl": "JSON Lines", "parquet": "Parquet", "arrow": "Arrow IPC", "csv": "CSV", "tsv": "TSV", "html": "HTML"}


def values_of(file: SourceFile) -> list[str]:
    with open_planned(file) as stream:
        return str(stream.read().decode()).split("|")[:-1]


def as_documents(texts: list[str], file: SourceFile) -> Iterator[Documents]:
    for row, text in enumerate(texts):
        error = "no text before the bar" if not text else ""
        records = [] if error else [{"row": row, "id": None, "text": text}]
        table = pa.Table.from_pylist(records, schema=schema_of(file.carried))
        yield Documents(table, [Rejected(row, row, -1, error)] * bool(error), 1, 1)


class Bars(Format):
    """A format of this test: texts that end in bars."""

    name = "bars"
    suffixes = (".bars",)

    def read(self, file_range: FileRange, batch_bytes: int) -> Iterator[Documents]:
        return as_documents(values_of(file_range.file), file_range.file)


class NamedBars(ColumnFormat):
    """The same with a column, whose name is before the first bar."""

    name = "named bars"
    suffixes = (".named",)

    def columns(self, file: SourceFile) -> list[str]:
        return values_of(file)[:1]

    def read(self, file_range: FileRange, batch_bytes: int) -> Iterator[Documents]:
        return as_documents(values_of(file_range.file)[1:], file_range.file)


FAKES: dict[str, Format] = {"bars": Bars(), "named bars": NamedBars()}


class Example(NamedTuple):
    """A file of a format, and what is wrong with others.

    content, texts   the file, and its documents
    broken, line     a file with a bad record, and its `line` in rejected.jsonl; 0: the file is refused before a run
    error            message about that record or file
    empty            message about an empty file; "" for one without documents
    missing          message about `columns: [nothing]`; "" for a column that is null
    settings         of the input
    package          that the format needs
    """

    content: bytes
    broken: bytes
    line: int
    error: str
    texts: list[str] = TEXTS
    empty: str = ""
    missing: str = "has no column 'nothing'; columns may name "
    settings: Mapping[str, Any] = MappingProxyType({})
    package: str = ""


def parquet_of(texts: list[str]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": ["x"] * len(texts), "text": texts}), sink, row_group_size=2)
    return sink.getvalue()


def arrow_of(texts: list[str]) -> bytes:
    table, sink = pa.table({"id": ["x"] * len(texts), "text": texts}), io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    return sink.getvalue()


def record(kind: str, content: bytes) -> bytes:
    head = f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: http://x\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content + b"\r\n\r\n"


NO_COLUMN = "column 'nothing' not found in .*; it has \\['id', 'text'\\]"
RESPONSE = record("response", b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + PAGE)
WET = b"".join(record("conversion", text.encode()) for text in TEXTS)
EXAMPLES = {
    "jsonl": Example(
        b"".join(b'{"id": "x", "text": "%b"}\n' % text.encode() for text in TEXTS),
        b'{"text": "a"}\n\nnot json\n', 3, "not valid JSON", missing="",
    ),
    "parquet": Example(
        parquet_of(TEXTS), b"PAR1 is no table", 0, "is not a readable Parquet file",
        empty="is not a readable Parquet file", missing=NO_COLUMN,
    ),
    "arrow": Example(
        arrow_of(TEXTS), b"ARROW1 is no table", 0, "is not readable Arrow IPC", empty="is not readable Arrow IPC",
        missing=NO_COLUMN,
    ),
    "csv": Example(
        "".join(["id,text\n", *(f'x,"{text}"\n' for text in TEXTS)]).encode(),
        b"id,text\nx,a\nmore, than, two\n", 3, "expected 2 columns, got 3", missing=NO_COLUMN,
    ),
    "tsv": Example(
        "".join(["id\ttext\n", *(f"x\t{text}\n" for text in TEXTS)]).encode(),
        b"id\ttext\nx\ta\nx\n", 3, "expected 2 columns, got 1", missing=NO_COLUMN,
    ),
    "text": Example(
        "||".join(TEXTS).encode(), b"a||" + b"x" * 600, 2, "larger than max_document_bytes",
        settings={"separator": "||", "max_document_bytes": 500},
    ),
    "html": Example(
        PAGE, PAGE * 9, 1, "larger than max_document_bytes", texts=[SENTENCE.strip()],
        settings={"max_document_bytes": 500}, package="resiliparse",
    ),
    "wet": Example(WET, WET[:-9], 4, "the file ends inside the record"),
    "warc": Example(
        RESPONSE, RESPONSE[:-9], 1, "the file ends inside the record", texts=[SENTENCE.strip()], package="resiliparse"
    ),
    "bars": Example("".join(f"{text}|" for text in TEXTS).encode(), b"a||", 2, "no text before the bar"),
    "named bars": Example(
        "".join(f"{text}|" for text in ("text", *TEXTS)).encode(), b"text|a||", 2, "no text before the bar",
        empty="has none of the columns text, .* with text", missing="column 'nothing' not found in .*'text'",
    ),
}  # fmt: skip


@pytest.fixture(params=[*FORMATS, *FAKES])
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The name of a format, whose example is in the working directory."""
    name = str(request.param)
    if name in FAKES:
        monkeypatch.setitem(FORMATS, name, FAKES[name])  # the line
    assert name in EXAMPLES, f"{name} has no example: add a file of the format to EXAMPLES in {__file__}"
    if EXAMPLES[name].package:
        needs(EXAMPLES[name].package)
    monkeypatch.chdir(tmp_path)
    return name


def file_of(name: str, content: bytes | None = None, suffix: str = "", stem: str = "a", **settings: Any) -> SourceFile:
    path = Path(stem + (suffix or FORMATS[name].suffixes[0]))
    path.write_bytes(EXAMPLES[name].content if content is None else content)
    [file] = find_files([Input(path=str(path), **EXAMPLES[name].settings, **settings)])
    return file


def batches_of(file: SourceFile, batch_bytes: int = 1 << 20, slice_bytes: int = 1 << 30) -> list[Documents]:
    slices = plan_slices([probe(file)], slice_bytes)
    return [batch for piece in slices for batch in read_documents(piece, batch_bytes)]


def texts_of(batches: list[Documents]) -> list[str]:
    return [text.strip() for batch in batches for text in batch.table.column("text").to_pylist()]


def assert_about(message: str, name: str, expected: str) -> None:
    """A message has what was expected, and names no other format."""
    assert re.search(expected, message), message
    others = [title for other, title in TITLES.items() if other != name and re.search(rf"\b{title}\b", message)]
    assert not others, message


def test_documents_do_not_depend_on_batches_and_slices(name: str):
    file = file_of(name)
    assert file.format == name and probe(file).text_column == (
        "text" if isinstance(format_of(file), ColumnFormat) else ""
    )
    assert texts_of(batches_of(file)) == texts_of(batches_of(file, 1)) == EXAMPLES[name].texts
    several = plan_slices([probe(file)], 40)
    assert (len(several) > 1) == format_of(file).is_divisible(file)
    assert texts_of(batches_of(file, 1, 40)) == EXAMPLES[name].texts
    for batch in batches_of(file):
        assert batch.rows == len(batch.table) + len(batch.rejected)


def test_small_files_of_one_slice(name: str):
    for stem in ("a", "b"):
        file_of(name, stem=stem)
    files = [probe(file) for file in find_files([Input(path=".", **EXAMPLES[name].settings)])]
    [together] = plan_slices(files, 1 << 30)
    batches = list(read_documents(together, 1 << 20))
    assert texts_of(batches) == EXAMPLES[name].texts * 2
    assert [row for batch in batches for row in batch.table.column("row").to_pylist()] == [
        *range(2 * len(EXAMPLES[name].texts))
    ]


def test_each_suffix_is_found(name: str):
    kind = FORMATS[name]
    content = EXAMPLES[name].content
    for suffix in kind.suffixes:
        assert file_of(name, suffix=suffix.upper()).format == name
        if kind.parts != NEEDED:
            packed = file_of(name, gzip.compress(content), suffix=f"{suffix}.gz")
            assert (packed.format, packed.compression) == (name, "gzip")
            assert texts_of(batches_of(packed)) == EXAMPLES[name].texts
        else:
            with pytest.raises(InputError, match="has internal compression"):
                file_of(name, gzip.compress(content), suffix=f"{suffix}.gz")
    page = (ROOT / "docs" / "inputs.md").read_text()
    described = re.search(r"\n    format  .*", FilesInput.__doc__ or "")
    assert described
    if name not in FAKES:
        missing = [suffix for suffix in kind.suffixes if suffix not in page]
        assert missing == [], f"docs/inputs.md lacks {missing}"
        assert name in described[0], f"the docstring of FilesInput lacks {name}"


def test_what_cannot_be_read_is_one_message(name: str):
    example, kind = EXAMPLES[name], FORMATS[name]
    cases = [(example.empty, lambda: probe(file_of(name, b""))),
             (example.missing, lambda: probe(file_of(name, columns=["nothing"])))]  # fmt: skip
    if not example.line:
        cases.append((example.error, lambda: probe(file_of(name, example.broken))))
    if kind.parts != NEEDED:
        cases.append(("", lambda: probe(file_of(name, b"no gzip", suffix=f"{kind.suffixes[0]}.gz"))))
    for number, (expected, check) in enumerate(cases):
        if not expected and number < 2:
            assert texts_of(batches_of(check())) == (EXAMPLES[name].texts if number else [])
            continue
        with pytest.raises(InputError) as error:
            check()
        assert_about(str(error.value), name, expected)
        assert number == 1 or f"a{kind.suffixes[0]}" in str(error.value)


@pytest.mark.parametrize("option", ["separator", "encoding", "delimiter", "quote", "escape", "header", "extract"])
def test_settings_of_other_formats_are_refused(name: str, option: str):
    values = {
        "separator": "|",
        "encoding": "latin-1",
        "delimiter": ";",
        "quote": "'",
        "escape": "\\",
        "header": False,
        "extract": "trafilatura",
    }
    settings = {**EXAMPLES[name].settings, option: values[option]}
    file_of(name)
    check: Callable[[], Any] = lambda: find_files([Input(path=".", **settings)])  # noqa: E731
    if option in FORMATS[name].options:
        assert check()
    else:
        with pytest.raises(InputError, match=f"is read as {name}, but {option} is for"):
            check()


def test_init_writes_a_recipe_that_reads_it(name: str):
    file_of(name, stem="found")
    assert main(["init", "."]) == 0
    [entry] = load_recipe("recipe.yaml").input
    [file] = find_files([entry])
    assert (file.format, probe(file).text_column) == (name, "text" if isinstance(FORMATS[name], ColumnFormat) else "")
    assert texts_of(batches_of(file))
    Path("unknown.xyz").write_bytes(EXAMPLES[name].content)
    if re.match(FORMATS[name].start, EXAMPLES[name].content):
        assert main(["init", "unknown.xyz", "--force"]) == 0
        assert [entry.format for entry in load_recipe("recipe.yaml").input if isinstance(entry, FilesInput)] == [name]


def test_estimates(name: str):
    file = probe(file_of(name))
    excerpts = list(draw_excerpts([file], 0, kind_of))
    texts = {text.strip() for each in excerpts for text in each.table["text"].to_pylist()}
    assert texts and texts <= {*EXAMPLES[name].texts}
    assert 0 < sum(excerpt.stored for excerpt in excerpts) <= file.bytes
    assert most_needed(recipe_of("a", stages=[], output={"formats": []}), [file]) > file.bytes
    assert FORMATS[name].expansion[0] <= FORMATS[name].expansion[1]
    counts = FORMATS[name].row_counts(file)
    assert counts is None or sum(counts) == len(EXAMPLES[name].texts)


def test_a_run_keeps_every_document_and_the_place_of_every_bad_record(name: str):
    example = EXAMPLES[name]
    file_of(name, stem="good")
    if example.line:
        file_of(name, example.broken, stem="other")
    recipe = recipe_of({"path": ".", **example.settings}, stages=[], output={"formats": []})
    result = curation.run(recipe, "out", engine="cpu", workers=1, slice_bytes=40)
    assert {text.strip() for *_, text in kept_rows(Path("out"))} >= {*example.texts}
    assert funnel_line(result.report).startswith(f"[{FORMATS[name].step}] docs=")
    places = [(Path(entry["file"]).stem, entry["line"]) for entry in rejected_rows(Path("out"))]
    assert places == [("other", example.line)] * bool(example.line)
    for entry in rejected_rows(Path("out")):
        assert_about(entry["error"], name, example.error)
    assert len(curation.open_run("out").rejected()) == len(places)


# Nothing else asks for the name of a format
