# SPDX-License-Identifier: Apache-2.0
"""The recipe `multilingual` keeps texts that the default recipe, which is for English, removes."""

import gzip
import json
from collections import Counter
from pathlib import Path

from curation.recipes.recipe import load_recipe
from curation.running.run import run
from tests.corpus import DATA
from tests.runs import table_rows

MIN_CHARACTERS = 700


def test_good_text_of_every_language_is_kept(tmp_path: Path):
    with gzip.open(DATA / "languages.jsonl.gz", "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    chosen = [record for record in records if len(record["text"]) >= MIN_CHARACTERS]
    written = {record["language"] for record in records}
    path = tmp_path / "texts.jsonl"
    path.write_text(
        "".join(json.dumps(record | {"id": f"{record['language']} {k}"}) + "\n" for k, record in enumerate(chosen))
    )
    kept: dict[str, Counter[str]] = {}
    for name in ("default", "multilingual"):
        recipe = load_recipe(name, input=str(path), settings=["output.formats=[]"])
        run(recipe, tmp_path / name, engine="cpu", progress=False)
        kept[name] = Counter(str(id_).split()[0] for (id_,) in table_rows(tmp_path / name / "documents", "id"))
    sizes = Counter(record["language"] for record in chosen)
    assert len(written) == 12 and min(Counter(record["language"] for record in records).values()) >= 50
    assert {language for language in written if 3 * kept["multilingual"][language] < sizes[language]} == set()
    assert {language for language in written if 3 * kept["default"][language] >= sizes[language]} == {"en"}
