# SPDX-License-Identifier: Apache-2.0
"""Dialects of CSV and TSV as programs write them: `init` detects them, and a run reads them or says what to set."""

import re
from pathlib import Path

import pytest

from curation.base.errors import InputError
from curation.reading.inputs import Input
from curation.recipes.survey import survey
from tests.reading.test_formats import read

LONG = "a text that is longer than any name of a column, "
# name -> file, content, settings that init finds, texts (None: rejected), message of a run without these settings
CASES: dict[str, tuple[str, str | bytes, dict[str, object], list[str | None], str]] = {
    "Spark": (
        "a.csv", 'id,text\n1,"he said \\"hi\\" to me"\n2,"a \\"b, c\\" d"\n3,C:\\new\n4,"x\\\\"\n', {"escape": "\\"},
        ['he said "hi" to me', 'a "b, c" d', "C:\\new", "x\\"], r'Set escape: "\\\\" of the input',
    ),
    "Spark, one column": ("a.csv", 'text\n"a \\"b\\" c"\n"d"\n', {"escape": "\\"}, ['a "b" c', "d"], "Set escape: "),
    "Spark, semicolons": (
        "a.csv", 'id;text\n1;"a \\"b\\""\n2;"x; \\"y\\""\n', {"delimiter": ";", "escape": "\\"}, ['a "b"', 'x; "y"'],
        'Set delimiter: ";"',
    ),
    "MySQL": (
        "a.csv", '"1","one \\"two\\"",\\N\n"2","back\\\\slash","x"\n"3","line\\\nend","y"\n"4",\\N,"z"\n',
        {"escape": "\\", "header": False, "text_column": "column_2"}, ['one "two"', "back\\slash", "line\nend", None],
        "has no readable header: .*curate init detects dialects",
    ),
    "mysql": (
        "a.tsv", "1\tone\\\ttab\t\\N\n2\tline\\\nend\tx\n3\tthree\\0\ty\n",
        {"quote": "", "escape": "\\", "header": False, "text_column": "column_2"},
        ["one\ttab", "line\nend", "three\0"], "Set ",
    ),
    "PostgreSQL": (
        "a.tsv", "id\ttext\n1\tone\\ntwo\n2\tback\\\\slash\n3\ta\\tb\n4\t\\N\n", {"quote": "", "escape": "\\"},
        ["one\ntwo", "back\\slash", "a\tb", None], 'Set quote: "", escape: ',
    ),
    "LaTeX": ("a.tsv", "id\ttext\n1\t$\\nabla \\alpha$\n2\t\\times\n", {}, ["$\\nabla \\alpha$", "\\times"], ""),
    "paths": ("a.csv", 'id,text\n1,"C:\\temp\\new\\"\n2,D:\\x\n', {}, ["C:\\temp\\new\\", "D:\\x"], ""),
    "JSON in CSV": ("a.csv", 'id,text\n1,"{""a"": ""x\\""y""}"\n2,b\n', {}, ['{"a": "x\\"y"}', "b"], ""),
    "Excel": ("a.csv", "sep=;\r\nid;text\r\n1;hello, there\r\n2;good\r\n", {}, ["hello, there", "good"], ""),
    "Excel, quoted line": ("a.csv", '"sep=\t"\r\nid\ttext\r\n1\ta, b\r\n', {}, ["a, b"], ""),
    "Excel, semicolons": ("a.csv", '\ufeffid;text\r\n1;"a;b"\r\n', {"delimiter": ";"}, ["a;b"], 'Set delimiter: ";"'),
    "Excel, Unicode": (
        "a.csv", "\ufeffid\ttext\r\n1\thello\r\n".encode("utf-16-le"), {"encoding": "utf-16", "delimiter": "\t"},
        ["hello"], r"\(read as UTF-16\) is one column",
    ),
    "UTF-16 with commas": (
        "a.csv", '\ufeffid,text\n1,"a, b"\n'.encode("utf-16-be"), {"encoding": "utf-16"}, ["a, b"], "",
    ),
    "UTF-16 without mark": (
        "a.csv", "id,text\n1,hello\n".encode("utf-16-le"), {"encoding": "utf-16-le"}, ["hello"],
        "looks like UTF-16LE without a byte order mark. Set encoding: utf-16le",
    ),
    "R": ("a.csv", '"","id","text"\n"1",1,"a ""b"""\n"2",2,"c"\n', {}, ['a "b"', "c"], ""),
    "pandas": ("a.csv", ",id,text\n0,1,a\n1,2,b\n", {}, ["a", "b"], ""),
    "single quotes": ("a.csv", "id,text\n1,'a, b'\n2,'it''s'\n", {"quote": "'"}, ["a, b", "it's"], 'Set quote: "\'"'),
    "apostrophes": ("a.csv", "id,text\n1,'tis\n2,'twas\n3,x\n", {}, ["'tis", "'twas", "x"], ""),
    "spaces": ("a.csv", 'id,text\n1, "a, b"\n2, "c"\n', {"delimiter": ", "}, ["a, b", "c"], 'Set delimiter: ", "'),
    "spaces in the header": (
        "a.csv", "id, text\n1, abc\n2, def\n", {"delimiter": ", "}, ["abc", "def"], 'set delimiter: ", "',
    ),
    "quotes inside": ("a.csv", 'id,text\n1,5" disk\n2,a "b" c\n', {}, ['5" disk', 'a "b" c'], ""),
    "carriage returns": ("a.csv", 'id,text\r1,a\r2,"b\rc"\r', {}, ["a", "b\rc"], ""),
    "joined files": ("a.csv", "id,text\n1,a\nid,text\n2,b\n", {}, ["a", None, "b"], ""),
    "a closed file": ("a.csv", "id,text,\n1,a,\n2,b,\n", {}, ["a", "b"], ""),
    "bars": ("a.csv", "id|text\n1|a, b\n2|c\n", {"delimiter": "|"}, ["a, b", "c"], r'Set delimiter: "\|"'),
    "tabs and quotes": ("a.tsv", 'id\ttext\n1\t"a\tb"\n2\t"c ""d"""\n', {}, ["a\tb", 'c "d"'], ""),
    "no header": (
        "a.csv", f'1,"{LONG}one"\n2,"{LONG}two"\n', {"header": False, "text_column": "column_2"},
        [f"{LONG}one", f"{LONG}two"], "or set header: false",
    ),
    "comments": ("a.csv", "# by x\nid,text\n1,a\n", {}, [], "a.csv begins with a comment, expected names of columns"),
    "R's write.table": ("a.csv", "id,text\n1,1,a\n2,2,b\n", {}, [], "has 2 fields, and all of the next 2 rows have 3"),
    "a delimiter at the end": ("a.csv", "id,text\n1,a,\n2,b,\n", {}, [], "all of the next 2 rows have 3"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_dialect_is_detected_and_read(case: str, tmp_path: Path):
    name, content, settings, texts, message = CASES[case]
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    if message:
        with pytest.raises(InputError, match=message):
            read(path)
    if not texts:
        with pytest.raises(InputError, match=message):
            survey([Input(path=str(path))])
        return
    [suggested] = survey([Input(path=str(path))]).inputs
    found = {key: value for key, value in suggested.settings.items() if key != "path"}
    assert found == {"text_column": "text"} | settings
    for given in [found] if message else [{}, found]:
        result = read(path, **given)
        assert result["text"] == [text for text in texts if text is not None]
        assert len(result["rejected"]) == texts.count(None)


def test_lines_are_counted_with_escaped_line_ends(tmp_path: Path):
    (tmp_path / "a.csv").write_text('id,text\n1,"a\\\nb"\n2\n3,"c\nd"\n4\n')
    found = read(tmp_path / "a.csv", escape="\\")
    assert found["text"] == ["a\nb", "c\nd"]
    assert [entry.line for entry in found["rejected"]] == [3, 6]


def test_escape_that_is_empty_reads_a_file_as_it_is(tmp_path: Path):
    (tmp_path / "a.csv").write_text("id,text\n1,'a b'\n2,'c'\n")
    assert read(tmp_path / "a.csv", escape="")["text"] == ["'a b'", "'c'"]
    with pytest.raises(ValueError, match=re.escape("escape is ';', as quote or delimiter")):
        Input(path="a.csv", escape=";", delimiter=";")
