# SPDX-License-Identifier: Apache-2.0
"""Labels of languages in all their forms: in `keep` of `language`, and in rules per language."""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from curation.base.errors import RecipeError
from curation.models.fasttext import label_names
from curation.recipes.recipe import convert_recipe, parse_recipe
from curation.rules.fineweb2_file import languages
from curation.rules.languages import matching, parse_label, same_language
from curation.stages import Language
from curation.stages.invoke import apply_stage
from tests.conftest import frame_of, table_of
from tests.oracle import fasttext_reference as reference
from tests.runs import assert_refused

FORMS = {
    "zh": "cmn_Hani", "zho": "cmn_Hani", "chi": "cmn_Hani", "cmn": "cmn_Hani", "cmn_Hani": "cmn_Hani",
    "ZHO_Hans": "cmn_Hani", "zh-Hant-TW": "cmn_Hani", "zh-CN": "cmn_Hani", "__label__zh": "cmn_Hani",
    "de": "deu_Latn", "DEU": "deu_Latn", "ger": "deu_Latn", "pt_BR": "por_Latn", "ja": "jpn_Jpan",
    "jpn_Hira": "jpn_Jpan", "ko-Kore": "kor_Hang", "ar": "arb_Arab", "sr": "srp_Cyrl", "srp_Latn": "srp_Latn",
    "no": "nob_Latn", "en": "eng_Latn", "tl": "fil_Latn", "bh": "bho_Deva", "sh": "srp_Latn",
    "als": "gsw_Latn",  # codespell:ignore als
    "als_Latn": "als_Latn", "sq": "als_Latn", "iw": "heb_Hebr", "uz": "uzn_Latn", "xyz_Latn": "xyz_Latn",
}  # fmt: skip


@pytest.mark.parametrize("label", FORMS)
def test_all_forms_of_a_label_are_read(label: str):
    language = parse_label(label)
    assert language and f"{language.code}_{language.script}" == FORMS[label]


@pytest.mark.parametrize("label", ["", "xx", "qqq", "english", "good", "deu_Latin", "deu_", "d", "zz_Latn", "de de"])
def test_other_words_are_no_languages(label: str):
    assert parse_label(label) is None


def test_every_label_of_lid_176_has_bounds():
    found = [parse_label(label) for label in label_names("")]
    assert len(found) == 176 and all(found)
    names = [f"{language.code}_{language.script}" for language in found if language]
    assert {*names} <= {*languages()} and len({*names}) == 176
    assert same_language(label_names("")) is None


def test_a_language_without_a_script_stands_for_all_its_scripts():
    labels = ["srp_Cyrl", "srp_Latn", "cmn_Hani", "deu_Latn"]
    assert matching("sr", labels) == matching("srp", labels) == ["srp_Cyrl", "srp_Latn"]
    assert matching("SRP-latn", labels) == ["srp_Latn"]
    assert matching("zh-Hans", labels) == ["cmn_Hani"]
    assert matching("fr", labels) == matching("word", labels) == []


ENGLISH = "The committee has published its report, and the members will discuss it in the next meeting."
GERMAN = "Der Ausschuss hat seinen Bericht vorgelegt, und die Mitglieder werden ihn in der Sitzung besprechen."


@pytest.mark.parametrize("keep", [["de"], "deu", ["DEU_Latn"], "ger", ["de-AT"]], ids=str)
def test_keep_takes_any_form(engine: ModuleType, keep: Any):
    frame, _ = apply_stage(engine, frame_of(engine, [ENGLISH, GERMAN]), Language(keep=keep))
    assert engine.to_arrow(frame).column("language").to_pylist() == ["de"]
    assert Language(keep=keep).column_facts("language").values == ("de",)


def test_any_keeps_all():
    for keep in ("any", "[any]"):
        (stage,) = parse_recipe(f"stages: [{{kind: language, keep: {keep}}}]").stages
        assert stage == Language() and len(stage.column_facts("language").values) == 176


def glotlid(folder: Path) -> Path:
    """A model with as many labels as GlotLID, in its form."""
    names = [*languages(), *(f"q{a}{b}_Latn" for a in "jkvw" for b in "abcdefghijklmnopqrstuvwxyz")]
    names += [f"x{a}{b}_Latn" for a in "abc" for b in "abcdefghijklmnopqrstuvwxyz"]
    labels = [(f"__label__{name}".encode(), 3000 - k) for k, name in enumerate(names[:2102])]
    model = reference.model_of(2102, buckets=50, low=2, high=5, loss=3)._replace(labels=labels)
    (folder / "glotlid.bin").write_bytes(reference.as_bytes(model))
    return folder / "glotlid.bin"


@pytest.mark.slow("labels of GlotLID find their rules")
def test_labels_of_glotlid(engine: ModuleType, tmp_path: Path):
    path = glotlid(tmp_path)
    model = reference.read(path)
    texts = [ENGLISH, GERMAN, "Комитет опубликовал свой доклад", "汉字 漢字", "a"]
    expected = [reference.predict(model, text) for text in texts]
    frame, _ = apply_stage(engine, frame_of(engine, texts), Language(model=str(path)))
    found = engine.to_arrow(frame).column("language").to_pylist()
    assert found == [pair and pair[0].removeprefix("__label__") for pair in expected]
    assert len(label_names(str(path))) == 2102
    (first,) = Language(model=str(path), keep=["zh"]).column_facts("language").values
    assert first == "cmn_Hani"
    assert Language(model=str(path), keep="sr").column_facts("language").values == ("srp_Cyrl", "srp_Latn")


# Rules per language


def reasons(rules: Any, values: list[Any], column: str = "language") -> list[Any]:
    from curation.base.engine import load_engine

    engine = load_engine("cpu")
    frame = engine.from_arrow(
        table_of(["a b"] * len(values)).append_column(column, pa.array(values, pa.large_string()))
    )
    stage = convert_recipe({"stages": [{"kind": "filter", "rules": rules}]}).stages[0]
    verdict = apply_stage(engine, frame, stage)[1].verdict
    bounds = verdict.broken_bounds().tolist()
    return [bound if gone >= 0 else None for gone, bound in zip(verdict.reason.tolist(), bounds, strict=True)]


def rules_per(column: str, **rules: int | str) -> list[Any]:
    groups = {name: bound if isinstance(bound, str) else {"words": {"min": bound}} for name, bound in rules.items()}
    return [{"per": column, "rules": groups}]


def test_groups_and_values_may_have_different_forms():
    values = ["de", "deu_Latn", "DEU", "zh", "cmn_Hani", "sr", "srp_Latn", "good", None]
    rules = rules_per("language", deu_Latn=3, zh=4, sr=5, fr="deu_Latn", other="keep")
    assert reasons(rules, values) == [3, 3, 3, 4, 4, 5, 5, None, None]
    by_script = rules_per("my_lang", srp_Cyrl=5, sr_Latn=6, other="zh", zh=4)
    assert reasons(by_script, ["sr", "srp_Latn", "fr"], "my_lang") == [5, 6, 4]
    assert reasons(rules_per("source", de=3, other="keep"), ["de", "deu", "deu_Latn"], "source") == [3, None, None]


def test_the_labels_of_lid_176_have_the_bounds_of_fineweb2():
    off = dict.fromkeys(("top_2gram", "too_few_punctuated_lines"), "off")
    rule = {"set": "fineweb2", "other": "de", "override": {**off, "de": {"too_few_words": {"min": 9}}}}
    assert reasons([rule], ["de", "deu_Latn", "zh", "xx"]) == [9, 9, 50, 9]


WRONG = {
    "kind: language, keep: [zh, cmn_Hani]": ("keep: 'zh' and 'cmn_Hani' are the same language. List it once",),
    "kind: language, keep: [xx]": ("keep: no language 'xx' in the model",),
    "kind: language, keep: [srp_Latn, deu_Cyrl]": ("keep: no language 'deu_Cyrl' in the model",),
    "kind: filter, rules: [{per: language, rules: {de: gopher, deu_Latn: nemo}}]": (
        "rules: 'de' and 'deu_Latn' are the same language. List it once",
    ),
    "kind: filter, rules: [{per: language, rules: {deu_Latin: gopher}}]": (
        "rules: no language 'deu_Latin'; did you mean deu_Latn",
    ),
}


@pytest.mark.parametrize("stage", WRONG)
def test_wrong_labels_are_refused(stage: str):
    assert_refused(f"stages: [{{{stage}}}]", WRONG[stage])


def test_a_model_whose_labels_are_words_has_no_rules_per_language(tmp_path: Path):
    labels = [(b"__label__good", 2), (b"__label__bad", 1)]
    model = reference.Model([b"fine", b"poor"], labels, [[4.0], [-4.0]], [[2.0], [-2.0]])
    (tmp_path / "own.bin").write_bytes(reference.as_bytes(model))
    first = {"kind": "language", "model": str(tmp_path / "own.bin")}
    rules = [{"set": "fineweb2", "other": "keep"}]
    told = "rules per language: the stage language writes 'good', 'bad', and no group lists any of these languages"
    recipe = convert_recipe({"stages": [first, {"kind": "filter", "rules": rules}]})
    with pytest.raises(RecipeError, match=re.escape(told)):
        recipe.stages[1].check_order(recipe.stages[:1])
    words = convert_recipe({"stages": [first, {"kind": "filter", "rules": rules_per("language", good=3, bad=9)}]})
    words.stages[1].check_order(words.stages[:1])
