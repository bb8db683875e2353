# SPDX-License-Identifier: Apache-2.0
"""Texts in capitals and with vowel marks: their labels, and their verdicts by `gopher_multilingual`."""

from types import ModuleType

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import curation
from curation.base.contract import TEXT
from curation.recipes.recipe import load_recipe, shipped_recipes
from curation.rules.languages import scripts_of
from curation.stages import Language
from curation.stages.rows.normalized import COUNTS, normalize
from tests.conftest import frame_of
from tests.corpus import NASTY, document_lists, real_documents
from tests.oracle.normalized import normalized
from tests.rules.test_fineweb2 import OF_NGRAMS, verdict_of
from tests.stages.test_language import ENGLISH, GERMAN, RUSSIAN

# The first article of the Universal Declaration of Human Rights
ARABIC = "يُولَدُ جَمِيعُ النَّاسِ أَحْرَارًا مُتَسَاوِينَ فِي الْكَرَامَةِ وَالْحُقُوقِ. وَقَدْ وُهِبُوا عَقْلًا وَضَمِيرًا."
HEBREW = "כָּל בְּנֵי הָאָדָם נוֹלְדוּ בְּנֵי חוֹרִין וְשָׁוִים בְּעֶרְכָּם וּבִזְכֻיּוֹתֵיהֶם."
BARE = {
    ARABIC: "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. وقد وهبوا عقلا وضميرا.",
    HEBREW: "כל בני האדם נולדו בני חורין ושוים בערכם ובזכיותיהם.",
}
BURMESE, YORUBA = "လူတိုင်းသည် တူညီလွတ်လပ်သော ဂုဏ်သိက္ခာ", "Gbogbo ènìyàn ni a bí ní òmìnira; iyì àti ẹ̀tọ́ kọ̀ọ̀kan sì dọ́gba."
CHEROKEE, GEORGIAN = "ᏂᎦᏓ ᎠᏂᏴᏫ ᏂᎨᎫᏓᎸᎾ ᎠᎴ ᎤᏂᏠᏱ ᎤᎾᏕᎿ ᏚᏳᎧᏛ ᎨᏒᎢ", "ყველა ადამიანი იბადება თავისუფალი"
SANTALI, NKO = "ᱥᱟᱱᱛᱟᱲᱤ ᱯᱟᱹᱨᱥᱤ ᱫᱚ ᱟᱭᱢᱟ ᱢᱟᱨᱮ ᱠᱟᱱᱟ ", "ߒߞߏ ߞߊ߲ ߠߎ߬ ߦߋ߫ ߛߓߍ߫ ߟߊ߫ ߢߌߡߊ߬ "
NAMES = " (The Times of London, 1995) "
MEMBERS = {  # text -> the normalized one
    GERMAN.upper(): GERMAN.lower(),
    GEORGIAN.upper(): GEORGIAN,
    f"{'A' * 20}{'b' * 20}": f"{'a' * 20}{'b' * 20}",
    f"{'A' * 20}{'b' * 21}": None,
    "A" * 19: None,
    ARABIC: BARE[ARABIC],
    HEBREW: BARE[HEBREW],
    **dict.fromkeys(
        [ENGLISH, RUSSIAN, BURMESE, YORUBA, CHEROKEE, *BARE.values(), f"`{RUSSIAN}` = $x + `{RUSSIAN}` < $y", ""]
    ),
}
RULES = [{"set": "gopher_multilingual", "other": "und"}]
ANY = dict.fromkeys(("duplicate_line_characters", *OF_NGRAMS), "off")
ANY_OF_PEERS = dict.fromkeys(("duplicate_lines", *OF_NGRAMS), "off")
PROSE = " ".join(f"{ENGLISH} Page {name} of it." for name in ["one", "two", "three", "four", "five"])


def found(engine: ModuleType, texts: list[str | None]) -> list[str | None]:
    """The normalized texts; None for those that stay as they are."""
    text = frame_of(engine, texts)[TEXT]
    edited = normalize(engine, text, engine.measure(text, COUNTS))
    if edited is None:
        return [None] * len(texts)
    parts = iter(engine.to_arrow(edited[0].to_frame(TEXT)).column(TEXT).to_pylist())
    return [next(parts) if is_edited else None for is_edited in edited[1]]


def test_capitals_and_vowel_marks_are_normalized(engine: ModuleType):
    assert found(engine, [*MEMBERS]) == [*MEMBERS.values()] == [normalized(text) for text in MEMBERS]
    texts = [*(text for text in NASTY if len(text) < 3000), *real_documents(2)]
    assert found(engine, [*texts, None]) == [*map(normalized, texts), None]


@pytest.mark.slow("normalized text is that of the plain definition, on generated texts")
@given(texts=document_lists(), marks=st.lists(st.sampled_from([ARABIC, HEBREW, "ٱلۡ", "ÀÉ", "Σ"]), max_size=6))
def test_generated_texts(engine: ModuleType, texts: list[str], marks: list[str]):
    made = [f"{text}{''.join(marks)}{text.upper()}" for text in texts]
    assert found(engine, made) == [*map(normalized, made)]


def test_labels_are_those_of_normalized_texts(engine: ModuleType):
    texts = [GERMAN.upper(), ARABIC, RUSSIAN, None, HEBREW]
    plain = [GERMAN.lower(), BARE[ARABIC], RUSSIAN, None, BARE[HEBREW]]
    of_plain = Language(normalize=False).apply(engine, frame_of(engine, plain)).columns
    found = Language().apply(engine, frame_of(engine, texts)).columns
    as_it_is = Language(normalize=False).apply(engine, frame_of(engine, texts)).columns
    assert found["language"].to_pylist() == of_plain["language"].to_pylist() == ["de", "ar", "ru", "en", "he"]
    assert (
        [*found["language_probability"]] == [*of_plain["language_probability"]] != [*as_it_is["language_probability"]]
    )


def test_scripts_of_no_language_of_the_model_have_no_label(engine: ModuleType):
    """The model labels such texts by the names, digits and marks in them. Text as it is keeps this label."""
    texts = [CHEROKEE, *(text + NAMES for text in (CHEROKEE, SANTALI, NKO, BURMESE)), f"{ENGLISH} {CHEROKEE[:9]}"]
    for settings, of_unknown in (
        ({}, [None] * 4),
        ({"windows": 5, "max_characters": 50}, [None] * 4),
        ({"normalize": False}, ["ar", "es", "en", "en"]),
    ):
        labels, probabilities = Language(**settings).apply(engine, frame_of(engine, texts)).columns.values()
        assert labels.to_pylist() == [*of_unknown, "my", "en"]
        assert ((probabilities == 0) == pd.isna(labels.to_pandas())).all()
    assert scripts_of(("en", "sr", "cmn_Hans")) == {"Latn", "Cyrl", "Hani"} and not scripts_of(("en", "spam"))


def test_only_our_own_set_judges_normalized_texts(engine: ModuleType):
    texts = [PROSE, PROSE.upper(), f"{ARABIC} " * 6]
    few, labels = ("too_few_stop_words", 0, 2), ["en", "en", "ar"]
    own = [RULES[0] | {"override": ANY}]
    assert verdict_of(engine, texts, own, labels) == [None, None, None]
    for words in ("AGENDA", "(?i)agenda"):
        rule = {"matches": words, "max_count": 0, "reason": "agenda"}
        assert verdict_of(engine, [f"{PROSE.upper()} AGENDA"], [*own, rule], "en") == [("agenda", 1, 0)]
    capitals = {"ratio": ["uppercase_characters", "characters"], "max": 0.5, "reason": "capitals"}
    assert verdict_of(engine, [texts[1]], [*own, capitals], "en")[0][0] == "capitals"
    peers = {"set": "gopher", "override": ANY_OF_PEERS}
    assert verdict_of(engine, texts[:2], [peers], "en") == [None, few]
    peers = {"set": "fineweb2", "other": "keep", "override": ANY_OF_PEERS | {"too_few_punctuated_lines": "off"}}
    assert verdict_of(engine, [texts[2]], [peers], "ar")[0] is not None


def test_frames_have_measures_of_the_text_as_it_is():
    """`explain` shows what the rules judge, and `filter` does not read the measures of other texts."""
    frame = pd.DataFrame({"text": [PROSE.upper()], "language": ["en"]})
    rules = [RULES[0] | {"override": ANY}]
    explained = curation.explain(frame, rules)
    assert explained["stop_words"].tolist() == [3]
    assert len(curation.filter(explained, {"stop_words": {"max": 0}})) == 1
    names = [name for name in explained.columns if name in curation.Measure.__members__]
    measured = curation.measure(frame, names)
    assert measured["stop_words"].tolist() == [0]
    assert len(curation.filter(measured, rules)) == 1


def test_recipes_of_others_label_text_as_it_is():
    recipes = [load_recipe(name, input="unused.jsonl") for name in shipped_recipes() if name != "default"]
    stages = [stage for recipe in recipes for stage in recipe.stages if isinstance(stage, Language)]
    assert len(stages) > 5 and not any(stage.normalize for stage in stages)
