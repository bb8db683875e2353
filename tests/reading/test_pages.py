# SPDX-License-Identifier: Apache-2.0
"""The main text of made-up pages by each extractor, and the encodings of pages, as browsers find them."""

import codecs
import gzip
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import curation
from curation.base.errors import CurationError, InputError, OutputError, RecipeError
from curation.cli import main
from curation.reading import links, pages
from curation.reading.extract_settings import Extract
from curation.reading.inputs import Input
from curation.reading.links import links_of
from curation.reading.page_encodings import charset_of, decode
from curation.reading.paths import find_files
from curation.recipes.recipe import parse_recipe
from curation.record.identity import check_computed_with, facts_of_files
from tests.needs import needs
from tests.runs import kept_rows, recipe_of

needs("resiliparse")

SENTENCE = "A page about the whales of the sea and of what they eat in the winter."
TABLE, LIST = "cell of the table", "item of the list"
PAGE = f"""<html><head><title>T</title></head><body><nav><a href=x>menu</a></nav><main><h1>Whales</h1>
<p>{" ".join([SENTENCE] * 4)}</p><table><tr><td>{TABLE}</td></tr></table>
<p>{" ".join([SENTENCE] * 3)}</p><ol><li>{LIST}</li></ol><p>{" ".join([SENTENCE] * 4)}</p></main>
<footer>imprint</footer></body></html>"""
ENGLISH = {"by": "justext", "language": "English"}
TEXTS = {  # S: the sentence
    "resiliparse": f"Whales\n\nS S S S\n\n{TABLE}\n\nS S S\n\n  1. {LIST}\n\nS S S S",
    "trafilatura": f"Whales\nS S S S\n| {TABLE} | \nS S S\n- {LIST}\nS S S S",
    "justext": f"Whales\n\nS S S S\n\n{TABLE}\n\nS S S\n\n{LIST}\n\nS S S S",
}


@pytest.fixture(params=TEXTS)
def by(request: pytest.FixtureRequest) -> dict[str, str]:
    """The settings of each extractor that is installed."""
    needs(request.param)
    return ENGLISH if request.param == "justext" else {"by": request.param}


def text_of(page: str, **settings: Any) -> str:
    return pages.extractor(Extract(**settings))(page.encode())[0]


def without(text: str, *left_out: str) -> str:
    """A text without the lines that have one of these, and without the blank line after each."""
    for content in left_out:
        text = re.sub(rf"[^\n]*{content}[^\n]*\n(\n|)", "", text)
    return text


def test_the_main_text_with_and_without_tables_and_lists(by: dict[str, str]):
    expected = TEXTS[by["by"]]
    assert text_of(PAGE, **by).replace(SENTENCE, "S") == expected
    assert text_of(PAGE, **by, tables="drop").replace(SENTENCE, "S") == without(expected, TABLE)
    assert text_of(PAGE, **by, lists="drop").replace(SENTENCE, "S") == without(expected, LIST)
    both = text_of(PAGE, **by, tables="drop", lists="drop").replace(SENTENCE, "S")
    assert both == without(expected, TABLE, LIST) and both.count("S") == 11


ODD = {
    "": "",
    "<html></html>": "",
    "<!-- c -->": "",
    "<p>": "",
    f"\ufeff<?xml version='1.0' encoding='latin-1'?><html><p>{SENTENCE * 4} Größe</p></html>": "Größe",
    f"<html><p>first \0{SENTENCE * 4}</p></html>": "winter",
    "<!-- c --><table><tr><td><p>" + SENTENCE * 4 + "</table>": "winter",
    "<div>" * 300 + f"<p>{SENTENCE * 4}": "",  # libxml2 leaves out what is deeper than 256 tags
}


def test_pages_that_break_parsers(by: dict[str, str]):
    for page, part in ODD.items():
        text = text_of(page, **by)
        assert part in text and not {"\0", "\ufffd"} & {*text}, page[:40]
    assert "winter" not in text_of([*ODD][6], **by, tables="drop")


def test_the_language_chooses_the_stop_words():
    needs("justext")
    page = f"<html><p>{SENTENCE * 4}</p></html>"
    assert text_of(page, **ENGLISH) == text_of(page, by="justext", language="none") == SENTENCE * 4
    assert text_of(page, by="justext", language="Vietnamese") == ""


def test_short_paragraphs_are_good_from_min_characters_on():
    needs("justext")
    short = "This is one of the sentences that are short."  # 44 characters
    page = f"<html><p>{SENTENCE * 4}</p><p>{short}</p></html>"
    assert text_of(page, **ENGLISH) == text_of(page, **ENGLISH, min_characters=70) == SENTENCE * 4
    assert text_of(page, **ENGLISH, min_characters=20) == f"{SENTENCE * 4}\n\n{short}"
    assert pages.note(Extract(**ENGLISH, min_characters=20)).endswith(", paragraphs from 20 characters on")
    for settings, message in (
        (ENGLISH | {"min_characters": 201}, "extract.min_characters must be from 0 to 200, not 201"),
        ({"min_characters": 20}, "extract.min_characters is of justext, and resiliparse takes none"),
    ):
        with pytest.raises(ValueError, match=message):
            Extract(**settings)


def test_results_depend_on_neither_order_nor_slices_nor_workers(
    by: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    made = [PAGE.replace("Whales", f"Whales {number % 3}") for number in range(6)]
    expected = [text_of(page, **by) for page in made]
    assert [text_of(page, **by) for page in reversed(made)] == expected[::-1]
    for number, page in enumerate(made):
        Path(f"{number}.html").write_text(page)
    recipe = recipe_of({"path": "*.html", "name": "web", "extract": by}, stages=[], output={"formats": []})
    result = curation.run(recipe, "out", engine="cpu", workers=1, slice_bytes=2000)  # slices of one page and of two
    assert [text for *_, text in kept_rows(Path("out"))] == expected
    assert result.report["computed_with"] == {"input web": pages.versions(Extract(**by))}


def test_versions_are_part_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.html").write_text(PAGE)
    (tmp_path / "b.jsonl").write_text('{"text": "a"}\n')
    files = find_files([Input(path=str(tmp_path / name)) for name in ("a.html", "b.jsonl")])
    before = facts_of_files(files)
    assert [*before] == ["input a"] and [*before["input a"]] == ["resiliparse"]
    monkeypatch.setattr(pages, "versions", lambda extract: {"resiliparse": "0.1"})
    now = facts_of_files(files)
    check_computed_with(now, now, "the run")
    with pytest.raises(
        OutputError, match=r"began to compute the input a with resiliparse [2-9].*; here it would be resi"
    ):
        check_computed_with(now, before, "the run")


def test_the_page_of_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("trafilatura", "justext"):
        needs(name)
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "web_pages.md").read_text("utf-8")
    blocks = dict(reversed(re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)))  # the first of each
    Path("crawl").mkdir()
    Path("crawl/a.html").write_text(PAGE)
    Path("archive").mkdir()
    Path("archive/a.warc.gz").write_bytes(gzip.compress(b"".join(responses(("text/html", PAGE.encode())))))
    Path("web.yaml").write_text(blocks["yaml"])
    commands = [shlex.split(line)[1:] for line in blocks[""].splitlines()]
    assert [main(command) for command in commands] == [0, 0]
    expected = [TEXTS["resiliparse"], without(TEXTS["justext"], TABLE)]
    assert [text.replace(SENTENCE, "S") for *_, text in kept_rows(Path("texts"))] == expected


# Bounds and faults


def test_bounds_of_the_libraries_over_lxml(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pages, "MAX_TAGS", 40)
    monkeypatch.setattr(pages, "MAX_BREAKS", 20)
    for by in ("trafilatura", "justext"):
        extract = Extract(by=by, language="English" if by == "justext" else "")
        pages.check(b"<b>a</b>" * 20, extract)
        pages.check(b"<p>a</P>" * 10, extract)
        with pytest.raises(ValueError, match=f"more than 40 tags, the maximum for {by}"):
            pages.check(b"<b>a</b>" * 21, extract)
        with pytest.raises(ValueError, match=f"more than 20 tags that may end a paragraph, the maximum for {by}"):
            pages.check(b"<p>a</P>" * 10 + b"<BR>", extract)
    pages.check(b"<p>a</p>" * 50, Extract())


def test_a_fault_of_a_library_rejects_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(html: str, **_: Any) -> str:
        raise RecursionError("too deep\n")

    monkeypatch.setitem(sys.modules, "trafilatura", SimpleNamespace(extract=fail))
    with pytest.raises(ValueError, match=r"^trafilatura cannot read the page: RecursionError: too deep$"):
        text_of(PAGE, by="trafilatura")


def in_recipe(extract: str, file: str = "a.html") -> Callable[[], Any]:
    return lambda: find_files(parse_recipe(f"input: [{{path: {file}, extract: {extract}}}]\nstages: []", "r").input)


def loaded(**settings: str) -> Callable[[], Any]:
    return lambda: pages.extractor(Extract(**settings))


REFUSED: dict[str, tuple[Callable[[], Any], type[CurationError], str]] = {
    "extractor": (in_recipe("trafilature"), RecipeError, "no extractor 'trafilature'; did you mean trafilatura"),
    "form": (in_recipe("3"), RecipeError, r"Expected `object|Expected `str"),
    "jsonl": (
        in_recipe("trafilatura", "b.jsonl"),
        InputError,
        "b.jsonl is read as jsonl, but extract is for html, warc",
    ),
    "hub": (in_recipe("trafilatura", "'hf:A/B'"), RecipeError, "extract is for files, hf:A/B is a data set"),
    "no language": (in_recipe("justext"), RecipeError, "justext needs the language of the pages. Write extract"),
    "void": (
        in_recipe("{by: trafilatura, language: English}"),
        RecipeError,
        "stop words of justext, and trafilatura ta",
    ),
    "tables": (in_recipe("{tables: no}"), RecipeError, "Expected `str`, got `bool`"),
    "lists": (in_recipe("{lists: none}"), RecipeError, "extract.lists must be keep or drop, not 'none'"),
    "setting": (in_recipe("{list: keep}"), RecipeError, "unknown field `list`"),
    "package": (
        loaded(by="trafilatura"),
        InputError,
        r"trafilatura needs a package .* pip install 'gpu-pipeline\[trafilatura\]'.*\. ",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_settings_are_one_message(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    call, kind, expected = REFUSED[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "trafilatura", None)
    for file in ("a.html", "b.jsonl"):
        Path(file).write_text("<p>")
    with pytest.raises(kind, match=expected):
        call()


def test_an_unknown_language_is_one_message():
    needs("justext")
    with pytest.raises(InputError, match=r"jusText has no stop words for 'Englisch'; did you mean English"):
        loaded(by="justext", language="Englisch")()


def test_init_and_plan_name_the_extractor(
    by: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    Path("a.html").write_text(PAGE)
    assert main(["init", "a.html"]) == 0
    assert "extract: trafilatura or {by: justext, language: English}" in Path("recipe.yaml").read_text()
    settings = {"lists": "drop", **by}
    Path("r.yaml").write_text(f"input: [{{path: a.html, extract: {settings}}}]\nstages: []\noutput: {{formats: []}}\n")
    assert main(["plan", "r.yaml"]) == 0
    language = " with stop words of English" * ("language" in by)
    assert f"main text by {by['by']}{language}, without lists; `columns` can carry" in capsys.readouterr().out


# Encodings

GREEK = "Καλημέρα κόσμε, τι κάνεις σήμερα; Όλα είναι καλά εδώ στη θάλασσα με τις φάλαινες."
CYRILLIC = "Привет, мир. Это русский текст о китах и о том, что они едят зимой в море."
HEAD = "<meta charset={}><p>{}"
ENCODED = {  # bytes, the server's label, text; as browsers show them
    "utf-8 without a label": ("<p>Größe", "utf-8", "", "<p>Größe"),
    "byte order mark before all others": ("\ufeff" + HEAD.format("koi8-r", "Größe"), "utf-8", "koi8-r", "Größe"),
    "utf-16 by its mark": ("\ufeff" + HEAD.format("koi8-r", "Größe"), "utf-16-be", "", "Größe"),
    "utf-16, low byte first": ("\ufeff" + HEAD.format("koi8-r", "Größe"), "utf-16-le", "", "Größe"),
    "server before meta": (HEAD.format("koi8-r", CYRILLIC), "cp1251", "windows-1251", CYRILLIC),
    "unknown server, then meta": (HEAD.format("cp1251", CYRILLIC), "cp1251", "none", CYRILLIC),
    "meta": (HEAD.format("'Windows-1251'", CYRILLIC), "cp1251", "", CYRILLIC),
    "http-equiv": (
        "<meta content='text/html; charset=windows-1253' http-equiv=Content-Type>" + GREEK, "cp1253", "", GREEK,
    ),
    "content of another meta": (
        "<meta name=x content='text/html; charset=koi8-r'>" + CYRILLIC, "cp1251", "", CYRILLIC,
    ),
    "meta in a comment": ("<!-- <meta charset=koi8-r> -->" + CYRILLIC, "cp1251", "", CYRILLIC),
    "meta after 1,024 bytes": (" " * 1024 + HEAD.format("koi8-r", CYRILLIC), "cp1251", "", CYRILLIC),
    "xml declaration": (f"<?xml version='1.0' encoding=\"koi8-r\"?><p>{CYRILLIC}", "koi8-r", "", CYRILLIC),
    "meta says utf-16": (HEAD.format("utf-16", "Größe"), "utf-8", "", "Größe"),
    "latin1 is windows-1252": (HEAD.format("latin1", "“Größe” €"), "cp1252", "", "“Größe” €"),
    "iso-8859-1 is windows-1252": ("“Größe” €", "cp1252", "ISO-8859-1", "“Größe” €"),
    "ascii is windows-1252": ("“Größe”", "cp1252", "us-ascii", "“Größe”"),
    "iso-8859-9 is windows-1254": ("“ğış”", "cp1254", "iso-8859-9", "“ğış”"),
    "gb2312 is gbk": (HEAD.format("gb2312", "鎔基 €"), "gb18030", "", "鎔基 €"),
    "shift_jis is windows-31j": (HEAD.format("shift_jis", "①これは"), "cp932", "", "①これは"),
    "euc-kr is windows-949": (HEAD.format("euc-kr", "똠방각하"), "cp949", "", "똠방각하"),
    "big5 with hkscs": (HEAD.format("big5", "喺度"), "big5hkscs", "", "喺度"),
    "tis-620 is windows-874": ("สวัสดี€", "cp874", "tis-620", "สวัสดี€"),
    "wrong label": (HEAD.format("latin1", "Größe"), "utf-8", "", "GrÃ¶ÃŸe"),
    "detected": (f"<p>{CYRILLIC * 3}", "cp1251", "", CYRILLIC),
    "detected shift_jis": ("<p>これは日本語のテキストです。鯨が冬に食べるもの。", "cp932", "", "鯨が冬に"),
    "detected iso-2022-jp": ("<p>これは日本語のテキストです。鯨が冬に食べるもの。", "iso2022_jp", "", "鯨が冬に"),
}  # fmt: skip


@pytest.mark.parametrize("name", ENCODED)
def test_encodings_are_those_of_browsers(name: str):
    page, codec, label, expected = ENCODED[name]
    text, is_malformed = decode(page.encode(codec), label)
    assert expected in text and not text.startswith("\ufeff") and not is_malformed


def test_malformed_bytes_and_a_set_encoding():
    assert decode(b"<meta charset=utf-8>Gr\xf6\xdfe") == ("<meta charset=utf-8>Gr\ufffd\ufffde", True)
    assert decode(codecs.BOM_UTF8 + b"\xff") == ("\ufffd", True)
    assert decode(b"<meta charset=utf-8>Gr\xf6\xdfe", "utf-8", "latin-1")[0].endswith("Größe")
    assert charset_of('text/html; Charset = "gb2312"; x') == "gb2312" and charset_of("text/html") == ""


def responses(*content: tuple[str, bytes]) -> Iterator[bytes]:
    for type_, body in content:
        http = f"HTTP/1.1 200 OK\r\nContent-Type: {type_}\r\n\r\n".encode() + body
        yield b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: %d\r\n\r\n%b\r\n\r\n" % (len(http), http)


def test_warc_takes_the_label_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    page = PAGE.replace("Whales", f"Κήτη {GREEK}")
    greek = page.encode("cp1253")
    made = [
        ("text/html; charset=windows-1253", greek), ("text/html", greek.replace(b"<h", b"<meta charset=cp1253><h", 1)),
        ("text/html; charset=windows-1253", page.encode("utf-8-sig")), ("text/html; charset=utf-8", greek),
    ]  # fmt: skip
    Path("a.warc").write_bytes(b"".join(responses(*made)))
    Path("b.html").write_bytes(greek.replace(b"<h", b"<meta charset=utf-8><h", 1))
    Path("c.html").write_bytes(greek)
    Path("d.html").write_text("<meta charset=cp1253>" + page)
    set_ = [{"path": "c.html", "encoding": "cp1253"}, {"path": "d.html", "encoding": "utf-8-sig"}]
    recipe = recipe_of("a.warc", "b.html", *set_, stages=[], output={"formats": []})
    report = curation.run(recipe, "out", engine="cpu", workers=1).report
    assert [GREEK in text for *_, text in kept_rows(Path("out"))] == [True, True, True, False, False, True, True]
    assert report["documents"]["repaired"] == 2


# Links

LINKS = {
    "resolved": ('<a href=" b/c?q=1&amp;r#top">x</a><A HREF="/d">', ["http://x.org/a/b/c?q=1&r", "http://x.org/d"]),
    "base": ('<base href="//y.org/z/"><area href=../e>', ["http://y.org/e"]),
    "once": ('<a href="#top"><a href="http://x.org/a/i.html"><a href>', ["http://x.org/a/i.html"]),
    "other schemes": ('<a href=mailto:a><a href="javascript:x()"><a href="http://[">', []),
    "not followed": ('<a href=b rel="x NoFollow"><a href=c rel=ugc><a href=d rel=next>', ["http://x.org/a/d"]),
    "robots": ('<meta name=Robots content="noindex,NOFOLLOW"><a href=b>', []),
    "encoding": ('<a href="http://x.org/\u00fc">'.encode("latin-1"), ["http://x.org/\u00fc"]),
    "long": (f'<a href="{"b" * 2_100}"><a href=c>', ["http://x.org/a/c"]),
}


@pytest.mark.parametrize("case", LINKS)
def test_links_of_a_page(case: str):
    page, expected = LINKS[case]
    page = page if isinstance(page, bytes) else page.encode()
    assert json.loads(links_of(page, "latin1" if case == "encoding" else "", "http://x.org/a/i.html")) == expected


def test_links_of_a_page_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(links, "MAX_LINKS", 2)
    assert json.loads(links_of(b"<a href=b><a href=b><a href=c><a href=d>", "", "http://x/")) == [
        "http://x/b",
        "http://x/c",
    ]
