# SPDX-License-Identifier: Apache-2.0
"""The recipes after other tools against plain Python (`tests/oracle/peer_recipes.py`): kept ids, texts, reasons."""

import random
from functools import cache
from pathlib import Path

import pytest

from curation.base.errors import InputError, RecipeError
from curation.models.fasttext import LANGUAGE_MODEL
from curation.recipes.recipe import load_recipe
from curation.running.run import run
from tests.corpus import real_documents
from tests.oracle import peer_recipes
from tests.pipelines.made import GERMAN, WORDS, as_jsonl, assert_outcome, fasttext_language, made_texts, run_recipe
from tests.runs import records_of, removed_rows

NAMES = ("c4", "curator_english", "datajuicer_redpajama", "dclm_baseline", "dolma", "dolma3", "fineweb", "refinedweb")
ODD = (
    "12k likes", "1,024 views", "5 downloads", "HOME | NEWS | ABOUT US", "Imprint", "2024", "Sign-in", "items in cart",
    "Sign-in to the shop", "The rest of the story is here. Read more...", "Read more!!!", "\u00a0", "- of the list",
    "You have 3 items in cart now", "Please read the terms of use of this page.", "A line without an end", "# # # #",
    "This page needs JavaScript to be seen.", "She was born in 1912.[3] That is all of it.", "wait for the rest...",
    "Write to a.b@mail.example for it. ", "The host 8.8.8.8 and the host 10.1.2.3 are of the kind.", "• of the list",
    "See https://pages.example/a_(b)?c=d#e or www.site.example/x.", "Call 212-555-0123 or (212) 555-0199 for it.",
    "“Quotes” and ‘more’ — of the kind…", "名前：は（これ）、です。", "x" * 1001 + " is a word of it.",
)  # fmt: skip


def sentence(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randrange(7, 15))).capitalize() + chance.choice(
        [".", "!", "?", '."']
    )


def pages(count: int) -> list[str]:
    """Pages of lines, with odd ones between, and copies of pages."""
    chance = random.Random(5)
    texts: list[str] = []
    for number in range(count):
        lines = [sentence(chance) for _ in range(chance.choice([4, 9, 18]))]
        for _ in range(chance.choice([0, 1, 2, 12])):
            lines.insert(chance.randrange(len(lines)), chance.choice(ODD))
        if number % 9 == 0:
            lines.insert(2, chance.choice(["Lorem ipsum of the page.", "function() { of the page }"]))
        if number % 7 == 0 and texts:
            lines = [*texts[-1].split("\n"), lines[0]]
        texts.append("\n".join(lines))
    return texts


@cache
def texts() -> list[str]:
    german = [" ".join(random.Random(k).choices(GERMAN, k=90)) + "." for k in range(4)]
    chance = random.Random(6)
    data = ["\n".join(f"{sentence(chance)} {word}@mail.example." for word in WORDS[:8])]
    policy = ["\n\n".join([*pages(2), *(f"The privacy policy of page {k}." for k in range(4))])]
    notice = "\n".join(sentence(chance) for _ in range(9))  # of more than 500 bytes
    notices = [f"{page}\n{notice}" for page in pages(3)]
    real = (text[:3000] for text in real_documents(40))
    return [*real, *made_texts(70), *pages(70), *german, *data, *policy, *notices]


@cache
def language(text: str) -> tuple[str, float]:
    return fasttext_language()(text)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_does_what_plain_python_says(name: str, tmp_path: Path):
    arguments = [] if name in ("curator_english", "dolma3") else [language]
    expected = getattr(peer_recipes, name)(texts(), *arguments)
    run_recipe(name, as_jsonl(texts(), tmp_path / "docs.jsonl"), tmp_path / "out")
    assert_outcome(tmp_path / "out", expected, [f"docs/{number}" for number in range(len(texts()))])
    assert any(text != texts()[number] for number, text in expected.kept) == (name != "curator_english")
    assert len(expected.kept) > 10 and len({stage for _, stage, _ in expected.removed}) > 1


DOMAIN = "{column: url, listed: {file: FILE, as: domain}, max_count: 0, reason: domain}"
FILES = {  # the settings that put in the stages that need files or columns, with FILE for a list of words or domains
    "c4": ["stages.pages.column=url", "stages.bad_words.rules=[{listed: {file: FILE, as: word}, max_count: 0}]"],
    "dclm_baseline": [f"stages.urls.rules=[{DOMAIN}]", "stages.quality.model=MODEL", "stages.quality.label=en"],
    "dolma": ["stages.pages.column=url"],
    "fineweb": [f"stages.urls.rules=[{DOMAIN}]"],
    "refinedweb": [f"stages.urls.rules=[{DOMAIN}]", "stages.pages.column=url"],
}


@pytest.mark.parametrize("name", FILES)
def test_stages_that_need_files_and_columns(name: str, tmp_path: Path):
    chosen = [*pages(12), "The wicked baker has a garden of the old kind, and that is all. " * 9]
    domains = ["bad.example", *(f"page{number}.example" for number in range(len(chosen) - 1))]
    path = tmp_path / "docs.jsonl"
    path.write_bytes(
        b"".join(records_of([text], url=f"https://{name}/") for text, name in zip(chosen, domains, strict=True))
    )
    (tmp_path / "list.txt").write_text("bad.example\nwicked\n")
    model = str(LANGUAGE_MODEL)
    given = [setting.replace("FILE", str(tmp_path / "list.txt")).replace("MODEL", model) for setting in FILES[name]]
    recipe = load_recipe(name, input={"path": str(path), "columns": ["url"]}, settings=given)
    assert not recipe.left_out and load_recipe(name).left_out
    report = run(recipe, tmp_path / "out", engine="cpu").report
    removed = {(stage, reason) for _, _, _, stage, reason, *_ in removed_rows(tmp_path / "out")}
    assert name in ("c4", "dolma") or ("urls", "domain") in removed
    assert {entry["name"] for entry in report["stages"]} >= {*recipe.stage_names}


@pytest.mark.parametrize(
    ("name", "setting", "told"),
    [
        ("curator_english", "curator_english.too_many_digitz.max=0.2", "no field or rule 'too_many_digitz', and no"),
        ("curator_english", "curator_english.word_count.max=-1", "min 50 is above max -1.0: the rule would remove"),
        ("curator_english", "curator_english.too_many_digits.max=15", "max: 15 can never remove anything"),
        ("dolma", "dolma.too_many_symbols.max_count=2", "max_count"),
        ("dclm_baseline", "quality.model=no.bin", "no fastText model can be read at no.bin: no such file"),
        ("fineweb", f"urls.rules=[{DOMAIN}]", "stage urls reads the column 'url', which the input a"),
        ("fineweb", "urls.rules=[{listed: {file: no.txt, as: word}, max_count: 0}]", "no.txt"),
        ("refinedweb", "lines.max_removed.wordz=0.1", "wordz"),
        ("datajuicer_redpajama", "mojibake.repair=maybe", "repair must be"),
    ],
)
def test_wrong_settings_of_a_recipe_are_refused(name: str, setting: str, told: str, tmp_path: Path):
    path = as_jsonl(["a"], tmp_path / "a.jsonl")
    with pytest.raises((RecipeError, InputError)) as error:
        run(load_recipe(name, input=str(path), settings=[f"stages.{setting}"]), tmp_path / "out")
    assert told in str(error.value) and "\n" not in str(error.value)
