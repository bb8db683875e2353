# SPDX-License-Identifier: Apache-2.0
"""The default recipe keeps good text of every language, and the English documents that Gopher's rules keep."""

import gzip
import json
from collections import Counter
from pathlib import Path

from curation.recipes.recipe import load_recipe
from curation.running.run import run
from tests.corpus import DATA
from tests.runs import table_rows

MIN_CHARACTERS = 700


def kept_ids(path: Path, out: Path, *settings: str) -> list[str]:
    recipe = load_recipe("default", input=str(path), settings=["output.formats=[]", *settings])
    run(recipe, out, engine="cpu", progress=False)
    return [str(id_) for (id_,) in table_rows(out / "documents", "id")]


def write_texts(path: Path, records: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_good_text_of_every_language_is_kept(tmp_path: Path):
    with gzip.open(DATA / "languages.jsonl.gz", "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    chosen = [record for record in records if len(record["text"]) >= MIN_CHARACTERS]
    texts = [record | {"id": f"{record['language']} {number}"} for number, record in enumerate(chosen)]
    path = write_texts(tmp_path / "texts.jsonl", texts)
    kept = Counter(id_.split()[0] for id_ in kept_ids(path, tmp_path / "any"))
    of_gopher = Counter(id_.split()[0] for id_ in kept_ids(path, tmp_path / "gopher", "stages.filter.rules=gopher"))
    sizes = Counter(record["language"] for record in chosen)
    assert len(sizes) == 12 and min(Counter(record["language"] for record in records).values()) >= 50
    assert {language for language in sizes if 5 * kept[language] < 4 * sizes[language]} == set()
    assert {language for language in sizes if 3 * of_gopher[language] >= sizes[language]} == {"en"}
    assert kept["en"] == of_gopher["en"]
