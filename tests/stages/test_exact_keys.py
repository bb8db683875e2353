# SPDX-License-Identifier: Apache-2.0
"""`exact_dedup` by keys: URLs, ids and other columns in place of texts, and which document of a group is kept."""

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curation
from curation.base.engine import PACKAGES, load_engine
from curation.base.errors import InputError, RecipeError
from curation.recipes.recipe import convert_recipe
from curation.results.finished.verify import verify
from curation.running.run import run
from curation.stages.corpus.keep_orders import SIGN, orders_of_dates, orders_of_numbers
from curation.stages.exact.canonical_urls import TRACKING, canonical_url, canonical_urls
from tests.conftest import frame_of
from tests.corpus import NASTY
from tests.oracle import keys as oracle
from tests.oracle.hashing import murmur3_x64_128
from tests.runs import kept_rows, recipe_of, removed_rows, report_of, table_rows

URLS = {  # RFC 3986, section 6, and what crawlers do beyond it
    "HTTP://Example.ORG/a": "example.org/a",
    "https://www.example.org:443/": "example.org",
    "http://example.org:8080": "example.org:8080",
    "https://example.org:80/": "example.org:80",
    "http://example.org:/a//": "example.org/a",
    "http://www.com/": "www.com",
    "www.example.org/A": "example.org/A",
    "//example.org/a/./b/../c": "example.org/a/c",
    "http://example.org/../a/..": "example.org",
    "http://example.org/%7euser/%c3%a9é%2f": "example.org/~user/%C3%A9%C3%A9%2F",
    "http://example.org/a%2E%2e/b|c%zz": "example.org/a../b%7Cc%25zz",
    "http://example.org/a/%2e%2E/b": "example.org/b",
    "http://user:secret@example.org./": "example.org",
    "http://example.org/?b=2&a=1&b=1&&A": "example.org?A&a=1&b=2&b=1",
    "http://example.org/a?#top": "example.org/a",
    "http://example.org/a?UTM_Source=x&fbclid=1&utm=2#!/b": "example.org/a?utm=2",
    "http://example.org\\a\\b": "example.org/a/b",
    "http://[0:0::1]:81/x": "[::1]:81/x",
    "http://müller.de/": "xn--mller-kva.de",
    "ftp://example.org:21/a": "ftp://example.org/a",
    " http://example.org/a.html \n": "example.org/a.html",
    "mailto:a@example.org": "example.org",
    "no url": "no url",
    "": "",
}
DATES = {
    "2024-05-06T07:08:09Z": "2024-05-06T07:08:09",
    "2024-05-06 07:08:09.25+02:00": "2024-05-06T05:08:09.25",
    "2024-05-06T07:08": "2024-05-06T07:08",
    "2024-05-06": "2024-05-06",
    "2024-05": "2024-05-01",
    "2024": "2024-01-01",
    "20240506": "2024-05-06",
    "20240506070809": "2024-05-06T07:08:09",
    "20240506T070809-0130": "2024-05-06T08:38:09",
    "Mon, 06 May 2024 07:08:09 GMT": "2024-05-06T07:08:09",
    "Mon, 06 May 2024 07:08:09 +0200": "2024-05-06T05:08:09",
    "Sunday, 06-Nov-94 08:49:37 GMT": "1994-11-06T08:49:37",
    "Sun Nov  6 08:49:37 1994": "1994-11-06T08:49:37",
    "6 May 2024": "2024-05-06",
    "05/06/2024": None,  # May or June
    "06.05.2024": None,
    "2024-02-30": None,
    "2024-13-01": None,
    "2024-05-06T25:00:00": None,
    "1714979289": None,  # seconds, or an id
    "yesterday": None,
}
ROWS = [  # url, score, date
    ("http://a.org/", "0.5", "2024-05-06"),
    ("https://www.a.org", "0.9", "Tue, 07 May 2024 00:00:00 GMT"),
    ("http://b.org/x?utm_source=m", None, "05/06/2024"),
    ("", "9", "2025"),
    ("b.org/x#y", "nan", ""),
    (None, "9", "2025"),
    ("http://a.org:80", "0.9", "20240507"),
    ("http://c.org", "-1", None),
]


def strings(values: list[Any]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, pa.large_string())])


@pytest.mark.parametrize("url", URLS)
def test_a_canonical_url(url: str):
    assert canonical_url(url) == URLS[url] == oracle.canonical_url(url, TRACKING)


def test_columns_of_urls_have_the_same_forms():
    chosen = random.Random(7)
    parts = ["a", "B", "%41", "%zz", "é", ".", "..", "", "x=1", "b=2", "utm_x=3", "x=0", "a b"]
    urls = [
        chosen.choice(["http://", "https://www.", "HTTPS://", "//", "", "ftp://"])
        + chosen.choice(["a.org", "www.A.org.", "a.org:80", "u@b.org:443", "www.org", "no host"])
        + "".join(chosen.choice("///?#&&\\") + chosen.choice(parts) for _ in range(chosen.randrange(7)))
        + chosen.choice(["", "", " ", "\u3000\n"])
        for _ in range(3000)
    ]
    urls += [text for text in NASTY if len(text) < 9999]
    dropped = ["utm_*", "x"]
    expected = [oracle.canonical_url(url, dropped) for url in urls]
    assert canonical_urls(pa.array([*urls, None], pa.large_string()), dropped).to_pylist() == [*expected, None]
    assert canonical_urls(pa.array([], pa.large_string())).to_pylist() == []


@pytest.mark.parametrize(
    ("dropped", "kept"),
    [([], "?Page=2&ref=1&utm_a=b"), (["page", "REF"], "?utm_a=b"), (["*"], ""), (["ut*", "%72ef"], "?Page=2")],
)
def test_the_list_of_parameters_is_a_setting(dropped: list[str], kept: str):
    assert canonical_url("a.org?ref=1&Page=2&utm_a=b", dropped) == f"a.org{kept}"


def test_a_key_of_one_megabyte():
    path = "/../%41&" * 125_000
    assert canonical_url(f"http://a.org{path}") == "a.org/A&"
    assert canonical_url(f"http://a.org?{'&b&a' * 250_000}") == "a.org?" + "a&" * 250_000 + "b&" * 249_999 + "b"


def test_forms_of_dates():
    orders = orders_of_dates(strings([*DATES, None, " "]))
    times = [None if order < 2 else np.int64(order ^ SIGN).astype("M8[us]") for order in orders]
    assert times == [*(None if date is None else np.datetime64(date, "us") for date in DATES.values()), None, None]
    assert orders[-2:].tolist() == [0, 0] and {int(order) for order in orders if order < 2} == {0, 1}


def test_orders_of_numbers():
    written = ["-inf", "x", None, "", "-1e3", "-0.0", "0", " 2.5 ", "1e3"]
    assert orders_of_numbers(strings(written)).argsort(kind="stable").tolist() == [2, 3, 0, 1, 4, 5, 6, 7, 8]
    column = pa.chunked_array([pa.array([float("nan"), None, float("-inf"), -0.0, 0.0, 2.0**60])])
    orders = orders_of_numbers(column).tolist()
    assert orders[:2] == [0, 0] and 1 < orders[2] < orders[3] == orders[4] < orders[5]
    assert orders_of_numbers(pa.chunked_array([pa.array([True, False, None])])).tolist()[::2] > [1, 0]


# Runs and frames


SETTINGS: dict[str, dict[str, Any]] = {
    "first": {"column": "url"},
    "lowercase": {"column": "url", "compare": "lowercase"},
    "url": {"column": "url", "compare": "url", "keep": "first"},
    "highest": {"column": "url", "compare": "url", "keep": {"highest": "score"}, "writes": "copies"},
    "newest": {"column": "url", "compare": "url", "keep": {"newest": "date"}, "writes": "copies"},
    "several": {"column": ["url", "score"], "keep": {"newest": "date"}, "writes": "copies"},
    "text": {"keep": {"highest": "score"}, "writes": "copies"},
}
READ = ["2024-05-06", "2024-05-07", "NaT", "2025-01-01", "NaT", "2025-01-01", "2024-05-07", "NaT"]
TIMES = {row[2]: np.datetime64(date) for row, date in zip(ROWS, READ, strict=True)}


def text_of(number: int) -> str:
    return f"text {number % 5}"


def many_rows(count: int) -> list[tuple[Any, ...]]:
    chosen = random.Random(3)
    return [*ROWS, *(tuple(chosen.choice(ROWS)[place] for place in range(3)) for _ in range(count))]


def expected(name: str, rows: list[tuple[Any, ...]]) -> oracle.Kept:
    settings = SETTINGS[name]
    urls = [row[0] or "" for row in rows]
    compared = {"url": lambda url: oracle.canonical_url(url, TRACKING), "lowercase": lambda url: url.strip().lower()}
    compare = compared.get(settings.get("compare", ""), lambda url: url)
    keys: list[Any] = [compare(url) or None for url in urls]
    if name == "several":
        keys = [(url, score) if url and score else None for url, score, _ in rows]
    if name == "text":
        keys = [text_of(number) for number in range(len(rows))]

    def score(row: int) -> float:
        return float(rows[row][1]) if rows[row][1] not in (None, "nan") else -np.inf

    def time(row: int) -> int:
        return int(TIMES[rows[row][2]].astype("M8[s]").astype(np.int64))  # NaT is the lowest

    keep = settings.get("keep", "first")
    return oracle.deduplicated(keys, None if keep == "first" else score if "highest" in keep else time)


def write_rows(path: Path, rows: list[tuple[Any, ...]]) -> Path:
    records = [
        {"id": f"d{number}", "text": text_of(number), "url": url, "score": score, "date": date}
        for number, (url, score, date) in enumerate(rows)
    ]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def finish(folder: Path, path: Path, *stages: dict[str, Any], index: bool = False, **more: Any) -> Path:
    entry = {"path": str(path), "columns": ["url", "score", "date"]}
    recipe = recipe_of(entry, stages=[*stages], output={"formats": [], "index": index})
    run(recipe, folder, **{"engine": "cpu", "workers": 2, "scheduler": "threads"} | more)
    return folder


def stage_of(name: str, **more: Any) -> dict[str, Any]:
    return {"kind": "exact_dedup", **SETTINGS[name], **more}


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = {name: [row[place] for row in rows] for place, name in enumerate(["url", "score", "date"])}
    return pa.table({"text": [text_of(number) for number in range(len(rows))], **columns, "place": range(len(rows))})


@pytest.mark.parametrize("name", SETTINGS)
def test_frames_keep_what_plain_python_keeps(name: str):
    rows, cpu = many_rows(60), load_engine("cpu")
    [stage] = convert_recipe({"stages": [stage_of(name)]}).stages
    table = cpu.to_arrow(curation.apply(cpu.from_arrow(table_of(rows)), stage))
    wanted = expected(name, rows)
    assert table.column("place").to_pylist() == sorted(wanted.copies)
    if "writes" in SETTINGS[name]:
        assert table.column("copies").to_pylist() == [wanted.copies[row] for row in sorted(wanted.copies)]


@pytest.mark.parametrize("name", ["lowercase", "url", "several"])
def test_both_engines_have_the_hashes_of_plain_python(engine: Any, name: str):
    [stage] = convert_recipe({"stages": [stage_of(name)]}).stages
    assert isinstance(stage, curation.ExactDedup)
    rows = [*ROWS, *((text, "1", "2024") for text in NASTY if len(text) < 9999)]
    keys = [row[0] or "" for row in rows]
    if name == "several":
        pairs = [[value.encode() for value in row[:2] if value] for row in rows]
        parts = [
            b":".join(b"%d:%s" % (len(value), value) for value in pair) if len(pair) == 2 else b"" for pair in pairs
        ]
    else:
        compare = str.lower if name == "lowercase" else lambda key: oracle.canonical_url(key, TRACKING)
        parts = [compare(key.strip()).encode() for key in keys]
    found = stage.keys(engine, engine.from_arrow(table_of(rows)))
    assert list(zip(found["high"].tolist(), found["low"].tolist(), strict=True)) == [*map(murmur3_x64_128, parts)]


@pytest.mark.parametrize(("name", "suffix"), [("highest", ".jsonl"), ("newest", ".parquet")])
def test_runs_keep_the_same_for_any_slices_and_workers(
    engine: Any, name: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("curation.stages.corpus.key_ranges.MIN_GROUP_ROWS", 7)
    monkeypatch.setattr("curation.stages.corpus.key_ranges.RANGE_KEYS", 20)
    rows = many_rows(40)
    path, wanted = write_rows(tmp_path / f"in{suffix}", rows), expected(name, rows)
    engine_name = next(short for short, package in PACKAGES.items() if package == engine.__name__)
    for folder, more in {"whole": {"workers": 1}, "small": {"slice_bytes": 4000, "workers": 3}}.items():
        finish(tmp_path / folder, path, stage_of(name), engine=engine_name, **more)
        written = table_rows(tmp_path / folder / "documents", "id", "copies")
        assert written == [(f"d{row}", wanted.copies[row]) for row in sorted(wanted.copies)]
        removed = [(row[1], row[4], row[5], row[6]) for row in removed_rows(tmp_path / folder)]
        assert removed == [
            (f"d{row}", "exact_duplicate", 1.0, f"d{kept}") for row, kept in sorted(wanted.removed.items())
        ]
        assert verify(tmp_path / folder) == []
    missing = sum(not row[0] for row in rows)
    [entry] = report_of(tmp_path / "small")["stages"]
    assert entry["details"]["without_key"] == missing
    assert f"{missing} documents without a key kept" in entry["lines"]


def test_later_stages_and_outputs_have_the_number_of_copies(tmp_path: Path):
    path, stage = write_rows(tmp_path / "in.jsonl", ROWS), stage_of("url", writes="copies")
    rule = {"kind": "filter", "rules": [{"column": "copies", "min": 2}]}
    entry, output = {"path": str(path), "columns": ["url"]}, {"formats": [], "cleaned": "jsonl"}
    run(recipe_of(entry, stages=[stage, rule], output=output), tmp_path / "filtered", engine="cpu")
    assert table_rows(tmp_path / "filtered/documents", "id", "copies") == [("d0", 3), ("d2", 2)]
    [file] = (tmp_path / "filtered/cleaned").iterdir()
    assert [json.loads(line)["copies"] for line in file.read_text().splitlines()] == [3, 2]
    by_text = {"kind": "exact_dedup", "writes": "copies"}  # the last one counts
    mix = {"kind": "mix", "by": "copies", "weights": {"1": 0.5, "2": 0.5}, "documents": 2}
    finish(tmp_path / "mixed", path, stage, by_text, mix)
    assert sorted(table_rows(tmp_path / "mixed/documents", "copies")) == [(1,), (2,)]


def test_keys_of_an_earlier_run(tmp_path: Path):
    stage = stage_of("newest")
    old = finish(tmp_path / "old", write_rows(tmp_path / "old.jsonl", ROWS), stage, index=True) / "index"
    new = [("www.b.org/x", "1", "2030"), (None, "1", "2030"), ("d.org", "1", "2031"), ("d.org/", "1", "2032")]
    finish(tmp_path / "new", write_rows(tmp_path / "new.jsonl", new), stage | {"index": str(old)})
    assert [row[1] for row in kept_rows(tmp_path / "new")] == ["d1", "d3"]
    assert [(row[1], row[4], row[6]) for row in removed_rows(tmp_path / "new")] == [
        ("d0", "exact_duplicate_of_index", "d2"),
        ("d2", "exact_duplicate", "d3"),
    ]
    for change, told in {
        "column": "column 'url' there, 'date' here",
        "compare": "compare 'url' there, 'exact' here.*drop_parameters",
        "drop_parameters": "drop_parameters .* there, .* here",
    }.items():
        other = {"column": "date", "compare": "exact", "drop_parameters": ["x"]}[change]
        with pytest.raises(RecipeError, match=f"was made with other settings: {told}"):
            finish(tmp_path / "no", tmp_path / "new.jsonl", stage | {"index": str(old), change: other})
    with pytest.raises(RecipeError, match=r"column 'url' there, None here"):
        finish(tmp_path / "no", tmp_path / "new.jsonl", {"kind": "exact_dedup", "index": str(old)})


def test_what_has_no_key_is_counted_and_warned_of(tmp_path: Path):
    path = write_rows(tmp_path / "in.jsonl", [(None, None, None), ("", None, None)])
    finish(tmp_path / "out", path, {**stage_of("newest"), "name": "by_url"})
    report = report_of(tmp_path / "out")
    assert report["stages"][0]["details"] == {"without_key": 2, "without_value": 2, "unreadable": 0}
    assert "by_url: none of 2 documents has a key: url is null or empty in each" in report["warnings"]
    told = "by_url: none of 2 documents has a date in date; keep: newest kept the first of each group"
    assert told in report["warnings"] and len(kept_rows(tmp_path / "out")) == 2


def test_keys_of_frames_may_be_numbers_ids_and_dates():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "text": list("pqrs"),
            "id": ["x", "y", "x", None],
            "number": [1.0, 1.5, float("nan"), float("nan")],
            "whole": [10, 10, 9, 9],
            "time": pandas.to_datetime(["2024-01-01", "2025-01-01", "2023-01-01", "2023-01-02"]),
            "kind": pandas.Categorical(["p", "p", None, "q"]),
        }
    )

    def kept(**settings: Any) -> str:
        return "".join(curation.exact_dedup(frame, **settings)["text"])

    assert [kept(column=name) for name in ("id", "number", "whole", "time", "kind")] == [
        "pqs", "pqrs", "pr", "pqrs", "prs",
    ]  # fmt: skip
    assert kept(column="whole", keep={"newest": "time"}) == "qs"
    assert kept(column="whole", keep={"highest": "number"}) == "qr"
    with pytest.raises(InputError, match="the frame has no column 'id'"):
        curation.exact_dedup(frame.drop(columns="id"), column="id")
    with pytest.raises(InputError, match=r"column 'lists' holds list<.*>; give a column of strings, numbers or dates"):
        curation.exact_dedup(frame.assign(lists=[[1]] * 4), column="lists")
    with pytest.raises(InputError, match="reads the column 'uri', which the frame lacks"):
        curation.exact_dedup(frame, column="uri")


def test_near_duplicates_are_kept_by_a_column_too():
    pandas = pytest.importorskip("pandas")
    text = "one two three four five six seven eight nine ten eleven twelve"
    texts = [text, "another text of other words altogether", f"{text} thirteen", f"{text} more"]
    frame = pandas.DataFrame(
        {"text": texts, "score": ["1", None, "7", "7"], "vector": [[9, 1], [-1, 9], [9, 1], [9, 1]]}
    )

    def kept(stage: curation.CorpusStage) -> list[int]:
        return list(curation.apply(frame, stage).index)

    assert kept(curation.FuzzyDedup(ngram=2, threshold=0.7, keep={"highest": "score"})) == [1, 2]
    assert kept(curation.SemanticDedup(column="vector", keep={"highest": "score"})) == [1, 2]
    with pytest.raises(InputError, match="keep: column 'name' has no number in any of 4 documents"):
        curation.apply(frame.assign(name="x"), curation.FuzzyDedup(keep={"highest": "name"}))


@pytest.mark.parametrize("policy", ["highest", "newest"])
def test_of_documents_without_a_value_the_first_is_kept(policy: str):
    pandas = pytest.importorskip("pandas")
    values = [None, "no date", "", "1999", None, "yesterday", "1998"]
    frame = pandas.DataFrame({"text": list("pqrstuv"), "key": list("aaabbbc"), "value": values})
    assert "".join(curation.exact_dedup(frame, column="key", keep={policy: "value"})["text"]) == "psv"


def test_values_that_look_the_same_are_equal(engine):
    texts = ["of\ufb01ce 10", "Office, 11", "\u043effi\u00adce 10.", "office\u200b\u3000  11!", "offce 10"]
    for column in ("text", "key"):
        frame = frame_of(engine, [*"abcde"] if column == "key" else texts)
        frame = engine.with_columns(frame, {"key": frame_of(engine, texts)["text"]})
        kept = curation.exact_dedup(frame, compare="visible", column="" if column == "text" else column)
        assert engine.to_arrow(kept)["key"].to_pylist() == [texts[row] for row in (0, 1, 4)]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"compare": "url"}, "compare: url compares a column. Give its name, such as column: url"),
        ({"column": "url", "compare": "uri"}, "compare must be one of exact, lowercase, visible, url, not 'uri'"),
        ({"column": []}, r"column must name a column or a list of columns, not \[\]"),
        ({"column": "text"}, "not 'text'. Leave it out for texts"),
        ({"column": ["url", "url"]}, "column must name each column once"),
        ({"column": "url", "max_characters": 9}, "it has no meaning with column"),
        ({"column": "uri"}, "reads the column 'uri', which the input in .* does not carry; did you mean url?"),
        ({"keep": "last"}, r"keep must be first, {highest: COLUMN} or {newest: COLUMN}, not 'last'"),
        ({"keep": {}}, "keep takes either highest or newest, not none"),
        ({"keep": {"highest": "score", "newest": "date"}}, "keep takes either highest or newest, not highest, newest"),
        ({"keep": {"highst": "score"}}, "keep takes either highest or newest, not highst"),
        ({"keep": {"newest": "text"}}, "newest must name a column of dates, not 'text'"),
        ({"keep": {"highest": "rank"}}, "reads the column 'rank', which the input in"),
        ({"drop_parameters": ["x"]}, "it needs compare: url"),
        ({"column": "url", "compare": "url", "drop_parameters": [""]}, "drop_parameters has an empty name"),
        ({"writes": "id"}, "writes must be a name for a new column, not 'id'"),
        ({"writes": "a b"}, "writes must be a name for a new column, not 'a b'"),
        ({"writes": "url"}, "has 'url', which the stage exact_dedup writes"),
    ],
)
def test_wrong_settings_end_in_one_message(settings: dict[str, Any], told: str, tmp_path: Path):
    path = write_rows(tmp_path / "in.jsonl", ROWS)
    with pytest.raises(RecipeError, match=told):
        finish(tmp_path / "out", path, {"kind": "exact_dedup", **settings})


@pytest.mark.parametrize(
    ("keep", "told"),
    [
        ({"highest": "url"}, r"keep: column 'url' has no number in any of 8 documents\. Name a column of numbers, or"),
        ({"newest": "score"}, r"keep: column 'score' has no date in any of 8 documents in a known form:"),
    ],
)
def test_a_column_of_other_values_ends_the_run(keep: dict[str, str], told: str, tmp_path: Path):
    path = write_rows(tmp_path / "in.jsonl", ROWS)
    with pytest.raises(InputError, match=told):
        finish(tmp_path / "out", path, {"kind": "exact_dedup", "keep": keep})


def test_settings_of_keys_do_not_change_runs_without_them(tmp_path: Path):
    path = write_rows(tmp_path / "in.jsonl", ROWS)
    finish(tmp_path / "out", path, {"kind": "exact_dedup"})
    named = {"column": "", "keep": "first", "drop_parameters": "tracking", "writes": ""}
    recipe = recipe_of({"path": str(path), "columns": ["url", "score", "date"]},
                       stages=[{"kind": "exact_dedup", **named}], output={"formats": []})  # fmt: skip
    assert run(recipe, tmp_path / "out", engine="cpu").already_complete
    [entry] = report_of(tmp_path / "out")["stages"]
    assert not entry.get("details") and entry["lines"] == ["3 documents with the text of an earlier one"]


def test_the_page_has_the_known_parameters():
    page = (Path(__file__).resolve().parents[2] / "docs/deduplication.md").read_text("utf-8")
    listed = page.partition("\n`tracking` stands for ")[2].partition(".\n")[0].replace("\n", " ")
    assert tuple(re.findall(r"`(.+?)`", listed)) == TRACKING
