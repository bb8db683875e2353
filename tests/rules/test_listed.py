# SPDX-License-Identifier: Apache-2.0
"""Rules on lists in files: what counts as an entry, files as people have them, and faults."""

import bz2
import gzip
import io
import lzma
import os
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import curation
from curation.base.engine import load_engine
from curation.base.errors import InputError, RecipeError
from curation.rules.decide import Rule, decide, expand_rules
from curation.rules.listed import Listed, count_listed, entries_of, notes_of, store
from tests.corpus import NASTY, real_documents
from tests.oracle import lists as oracle

URLS = [
    "https://www.Bad.com/x",
    "bad.com",
    "http://notbad.com",
    "http://10.0.0.1/",
    "https://münchen.de",
    "",
    None,
    "-",
]


def counts(values: Any, entries: str | bytes, way: str, folder: Path) -> list[int]:
    """What a rule counts in a column, with the list in a file, and with the entries that a run stores of it."""
    path = folder / "list.txt"
    path.write_bytes(entries.encode() if isinstance(entries, str) else entries)
    listed = Listed(file=str(path), as_=way)
    column = pa.chunked_array([pa.array(values[:3], pa.string()), pa.array(values[3:], pa.string())])
    found = count_listed(column, listed)
    (folder / "stored").mkdir(exist_ok=True)
    assert (count_listed(column, store(listed, folder / "stored")) == found).all()
    return found.astype(int).tolist()


@pytest.mark.parametrize(
    ("way", "entries", "values", "found"),
    [
        ("domain", "bad.com", URLS, [1, 1, 0, 0, 0, 0, 0, 0]),
        ("domain", "com\nwww.bad.com\nbad.com", URLS, [3, 2, 1, 0, 0, 0, 0, 0]),
        ("domain", "0.1\n10.0.0.1\n2001:db8::1", [*URLS, "http://[2001:db8:0::1]:80/"], [0, 0, 0, 1, 0, 0, 0, 0, 1]),
        ("domain", "MÜNCHEN.de\nxn--mnchen-3ya.de", URLS, [0, 0, 0, 0, 1, 0, 0, 0]),
        ("word", "porn\ncheap pills\n10", ["PORN-cheap.pills", "porno", "cheap, pills", "a 10 b", "", None],
         [2, 0, 1, 1, 0, 0]),
        ("word", "café\nΣΟΦΌΣ\nहिन्दी", ["Café café", "σοφός σοφόσ", "हिन्दी", "हिन"], [1, 1, 1, 0]),
        ("value", "a b\nC", ["a b", "a b ", "c", "C", None], [1, 0, 0, 1, 0]),
        ("part", "free sex\nx\nfree", ["FREE-se.xy", "FR.E.E", "X", "se", None], [3, 1, 1, 0, 0]),
        ("part", "a" * 70 + "\n" + "a" * 90, ["a-" * 70, "b" + "a" * 90, "a" * 69], [1, 2, 0]),
    ],
)  # fmt: skip
def test_what_is_found(way: str, entries: str, values: list[Any], found: list[int], tmp_path: Path):
    assert counts(values, entries, way, tmp_path) == found
    assert [oracle.count(value, entries.split("\n"), way) for value in values] == found


@pytest.mark.parametrize("way", ["domain", "word", "value", "part"])
def test_plain_python_finds_the_same(way: str, tmp_path: Path):
    chosen = random.Random(1)
    texts = [text for text in NASTY if len(text or "") < 10_000] + real_documents(5)
    words = sorted({word for text in texts for word in oracle.runs_of((text or "")[:1000])})
    entries = [*chosen.sample(words, 20), "a", "the", "of the", "ei"]
    if way == "domain":
        letters = ["a", "b", "com", ".", "1", "ü", "/", ":"]
        texts = ["".join(chosen.choices(letters, k=1 + number % 7)) for number in range(300)]
        entries = ["a.com", "b", "com", "aü.b", "1", "a.1"]
    if way == "value":
        entries += [
            text
            for text in texts[:30]
            if text and text.strip() == text and text[0] != "#" and {*"\n\0"}.isdisjoint(text)
        ]
    found = counts(texts, "\n".join(entries), way, tmp_path)
    assert found == [oracle.count(text, entries, way) for text in texts]
    assert any(found) and not all(found)


def _tar(mode: str) -> Callable[[bytes], bytes]:
    def pack(data: bytes) -> bytes:
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode=mode) as archive:
            for name, content in (("./other/domains", b"other.com"), ("./adult/domains", data)):
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        return file.getvalue()

    return pack


def _zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes, "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": _zstd,
    "tar": _tar("w"), "tar.gz": _tar("w:gz"), "tar.xz": _tar("w:xz"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_lists_are_read_as_people_have_them(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("curation.rules.list_files.BATCH_BYTES", 7)  # lines are divided
    path = tmp_path / "list"  # the name does not matter
    path.write_bytes(FORMS[form]("\ufeff# made by hand\r\n\r\n bad.com \r\n*.Worse.ORG.\r\nmünchen.de".encode()))
    member = "adult/domains" if form.startswith("tar") else ()
    listed = Listed(file=str(path), as_="domain", member=member)
    urls = ["http://bad.com", "http://a.worse.org", "http://www.münchen.de", "http://other.com"]
    assert count_listed(pa.chunked_array([urls]), listed).tolist() == [1, 1, 1, 0]
    assert notes_of(listed)[:2] == (3, 0)
    if member:
        both = Listed(file=str(path), as_="domain", member=["adult/domains", "other/domains"])
        assert count_listed(pa.chunked_array([urls]), both).tolist() == [1, 1, 1, 1]


def test_hosts_files_are_read(tmp_path: Path):
    path = tmp_path / "hosts"
    path.write_text("127.0.0.1 localhost\n::1 ip6-localhost\n0.0.0.0 bad.com www.worse.org # both\n0.0.0.0 0.0.0.0\n")
    listed = Listed(file=str(path), as_="domain")
    assert (len(entries_of(listed).keys), notes_of(listed).bad) == (2, 0)


def test_bad_entries_are_counted_and_named(tmp_path: Path):
    path = tmp_path / "list"
    path.write_bytes(b"a.com\n||ads.com^\nb.com/path\nb.com:80\ntwo words\n\xff.com\nhttps://c.com/\ncom\nu@d.com # x")
    notes = notes_of(Listed(file=str(path), as_="domain"))
    assert (notes.entries, notes.bad, notes.single, notes.first_single) == (3, 6, 1, ("com",))
    assert {*notes.first_bad} <= {"line 2: '||ads.com^'", "line 3: 'b.com/path'", "line 6: '\ufffd.com'"}
    path.write_text("good\n---\n" + "w " * 17)
    assert notes_of(Listed(file=str(path), as_="word"))[:3] == (
        1,
        2,
        ("line 2: '---'", f"line 3: '{' '.join('w' * 17)}'"),
    )


FAULTS: dict[str, tuple[bytes | None, dict[str, Any], str]] = {
    "folder": (None, {}, "/list is a folder, expected a file"),
    "empty": (b"", {}, "as domain: there are none. Expected one per line"),
    "comments": (b"# a.com\n", {}, "there are none. Expected one per line"),
    "no domains": (b"a,b\nc,d\n", {}, "there are none; 2 lines without one, the first: line 1: 'a,b'"),
    "binary": (b"a.com\nb\0c", {}, "is not text in UTF-8: it has a zero byte near line 1"),
    "utf-16": ("a.com\n".encode("utf-16"), {}, "is not text in UTF-8"),
    "long line": (b"a.com\n" + b"a" * (3 << 20), {}, "line 2 of .* has more than 1,048,576 bytes"),
    "cut off": (gzip.compress(b"a.com\n" * 99)[:-9], {}, "is damaged or cut off: .* Download it again"),
    "no archive": (b"a.com", {"member": "x"}, "is no tar archive; leave out member: x"),
    "no member": (_tar("w")(b""), {"member": "adult/domain"},
                  "has no file 'adult/domain'; it has other/domains, adult/domains; did you mean adult/domains"),
    "archive": (_tar("w:gz")(b""), {}, "is a tar archive; name the list in it by member: NAME; it has other/domains"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_list_that_cannot_be_read_is_refused(fault: str, tmp_path: Path):
    content, settings, told = FAULTS[fault]
    path = tmp_path / "list"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(InputError, match=told):
        entries_of(Listed(file=str(path), as_="domain", **settings))


def test_a_missing_list_and_a_pipe_are_refused(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe is a pipe or a device, expected a file"):
        entries_of(Listed(file=str(tmp_path / "pipe"), as_="word"))
    with pytest.raises(InputError, match=r"cannot open .*gone.txt: "):
        entries_of(Listed(file=str(tmp_path / "gone.txt"), as_="word"))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"file": "x", "as_": "domains"},
            "as must be one of domain, word, value, part, stop_word, not 'domains'; did you mean domain",
        ),
        ({"file": "", "as_": "word"}, "file of listed must be the path of a file, not ''"),
        ({"file": "https://a.org/x", "as_": "word"}, "listed takes a local file, not https://a.org/x; download it"),
        ({"file": "x", "as_": "word", "member": ""}, "member must name a file of the archive"),
    ],
)
def test_a_list_without_a_meaning_is_refused(settings: dict[str, Any], told: str):
    with pytest.raises(ValueError, match=told):
        Listed(**settings)


def test_columns_that_have_no_urls(tmp_path: Path):
    path = tmp_path / "list.txt"
    path.write_text("7\na.com\n")

    def judged(values: pa.Array, way: str) -> list[float]:
        rule = Rule(column="url", listed={"file": str(path), "as": way}, max_count=0)
        return decide([rule], {}, len(values), {"url": pa.chunked_array([values])}).value.tolist()

    with pytest.raises(
        RecipeError, match=r"rule url_listed: column 'url' holds int64, but listed as domain is for str"
    ):
        judged(pa.array([1]), "domain")
    with pytest.raises(RecipeError, match="holds double, but listed as value is for strings and integers"):
        judged(pa.array([1.0]), "value")
    np.testing.assert_equal(judged(pa.array([7, 8, None]), "value"), [1.0, np.nan, np.nan])
    np.testing.assert_equal(judged(pa.array(["x.a.com"]).dictionary_encode(), "domain"), [1.0])
    np.testing.assert_equal(judged(pa.nulls(2), "domain"), [np.nan, np.nan])


def test_too_many_rules_are_refused():
    with pytest.raises(ValueError, match=r"rules has 40,000 rules, at most 32,767 are allowed. Put values into a file"):
        expand_rules([Rule(measure="words", min=1)] * 40_000)


ANY = {"any": [{"words": {"min": 3}}, {"column": "url", "in": ["a"]}], "reason": "short"}


def test_a_document_stays_if_one_rule_of_any_holds():
    frame = load_engine("cpu").from_arrow(
        pa.table({"text": ["one two three", "one", "one", ""], "url": ["b", "a", "b", None]})
    )
    assert curation.filter(frame, ANY)["text"].tolist() == ["one two three", "one"]
    told = curation.explain(frame, ANY)
    assert told["reason"].fillna("").tolist() == ["", "", "short", "short"]
    assert told["value"].tolist()[2:] == [1.0, 0.0] and told["bound"].tolist()[2:] == [3.0, 3.0]
    assert Rule(any_=[Rule(measure="words", min=3), Rule(matches="x", min_count=1)]).name == "words_or_text_matches"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"any_": [Rule(measure="words", min=1)]}, "any needs two rules or more, not 1"),
        ({"any_": "gopher"}, "any takes a list of rules, not 'gopher'"),
        (
            {"any_": [Rule(set="gopher")] * 2},
            "any takes single rules, not the set gopher. Write the rules of a set one by",
        ),
        ({"any_": [Rule(any_=[Rule(measure="words", min=1)] * 2)] * 2}, "any takes single rules, not any"),
        ({"any_": [Rule(measure="words", min=1, reason="x")] * 2}, "reason 'x' has no meaning inside any; give any a"),
        ({"any_": [Rule(measure="words", min=1)] * 2, "min": 1}, "min has no meaning with any. Give it in each rule"),
        ({"any_": [Rule(measure="words", min=1)] * 2, "column": "c"}, "give one of measure: NAME"),
        ({"listed": {"file": "x", "as": "word"}}, "listed needs bounds: min_count: 1 keeps documents with an entry"),
        ({"listed": {"file": "x", "as": "word"}, "max": 1}, "max has no meaning with listed. Use max_count"),
        ({"listed": {"file": "x", "as": "word"}, "min_count": 0}, "min_count: 0 can never remove anything"),
        ({"measure": "words", "listed": {"file": "x", "as": "word"}, "max_count": 0}, "give one of measure: NAME"),
    ],
)
def test_such_a_rule_without_a_meaning_is_refused(settings: dict[str, Any], told: str):
    with pytest.raises(ValueError, match=told):
        Rule(**settings)
