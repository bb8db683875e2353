# SPDX-License-Identifier: Apache-2.0
"""The words of every engine equal plain Python, for all scripts, and so do measures of words."""

import random

import pytest
from hypothesis import given

from curation.base.contract import TEXT
from curation.base.measures import Measure
from curation.kernels.word_breaks import MAX_SPAN, PIECES, WORDS
from curation.stages.words import measure_words, split_words
from tests.conftest import frame_of
from tests.corpus import NASTY, document_lists, real_documents
from tests.oracle.measures import measure_document
from tests.oracle.words import listed, shown, words_of

SAMPLES = (
    "我们用Python写程序，处理1,000个文件。“你好”，他说：“再见！”《三国演义》是中国古典四大名著之一",
    "ジョン・スミスさんは東京タワーへ行きました。ｶﾀｶﾅとひらがなです（笑）",
    "ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำแน่นอน๑๒๓ ກຣາຟິກສະບາຍດີ ភាសាខ្មែរជា မြန်မာဘာသာစကားသည်",
    "a-b.c'd 3,000... !!?? (foo)bar_baz x''y a.-b “a” ((你)) foo(你好)bar 好((a 好。”：！？abc 𠀀𠀁中 ကၢၼ်",
    "中国人\n民共和\r\n\t国。\nภาษา\nไทย中\nภา ภาษา\u200bไทย",
    "un\u200bbelievable don'\u200bt (\u200b中\u200b\u200b. a\u200b\u200b\u200b\u200b\u200bb",
    "ሰላም፡ለዓለም፡፡ነው። a\u1361b",
)


def split(engine, texts: list[str | None], words: str) -> list[str | None]:
    """The texts with a space between adjacent words, and the same from the function of the stages."""
    text = frame_of(engine, texts)[TEXT]
    parts, wanted = engine.split_words(text, words)
    split = iter(engine.to_arrow(parts.to_frame(TEXT)).column(TEXT).to_pylist())
    found = [next(split) if is_split else whole for is_split, whole in zip(wanted.tolist(), texts, strict=True)]
    assert next(split, None) is None
    whole = engine.to_arrow(split_words(engine, text, words).to_frame(TEXT)).column(TEXT)
    assert whole.to_pylist() == found
    return found


def assert_words(engine, texts: list[str], words: str) -> None:
    for text, found in zip(texts, split(engine, texts, words), strict=True):
        assert found is not None and found.split() == words_of(text, words), text[:200]
        assert "".join(found.split()) == "".join((shown(text, words) if words != "spaces" else text).split())


@pytest.mark.parametrize("words", [*WORDS, PIECES])
def test_nasty_corpus(engine, words: str):
    assert_words(engine, [*SAMPLES, *(text[:3000] for text in NASTY)], words)
    assert split(engine, [None, "", "中文程序", None], words)[::3] == [None, None]


@pytest.mark.parametrize("words", [*WORDS[1:], PIECES])
def test_long_runs_and_random_text(engine, words: str):
    draw = random.Random(5)
    letters = sorted({character for text in SAMPLES for character in text} | {" ", "\n"})
    known = draw.sample(sorted(listed()), 400)
    texts = ["ア" * (2 * MAX_SPAN + 3), "中国人民" * MAX_SPAN, "กา" * MAX_SPAN, "\u0e31" * (MAX_SPAN + 1)]
    texts += ["".join(draw.choices(letters, k=60)) for _ in range(60)]
    texts += ["".join(draw.choices(known, k=12)) for _ in range(30)]
    pieces = [
        *"\u200b\u200b\n\r \t\u1361中国กา.('a。（ア",
        "\r\n",
        " \n ",
        " " * 8 + "\n",
        " " * 9 + "\n",
        "\u200b" * 4,
    ]
    texts += ["".join(draw.choices(pieces, k=50)) for _ in range(60)]
    assert_words(engine, texts, words)


@pytest.mark.slow("any text has the same words as in plain Python")
@given(document_lists())
def test_any_text(engine, texts: list[str]):
    for words in (*WORDS, PIECES):
        assert_words(engine, texts, words)


def test_what_words_are(engine):
    found = {words: (split(engine, [SAMPLES[0]], words)[0] or "").split() for words in WORDS}
    assert "|".join(found["scripts"]) == (
        "我们|用|Python|写|程序，|处理|1,000|个|文件。|“你好”，|他|说：|“再见！”|"
        "《三国|演义》|是|中国|古典|四大|名著|之一"
    )
    assert "|".join(found["table"]) == (
        "我们|用|Python|写|程序|，|处理|1,000|个|文件|。|“|你好|”|，|他|说|：|“|再见|！|”|"
        "《|三国|演义|》|是|中国|古典|四大|名著|之一"
    )
    assert split(engine, ["He said: “No-one's (ever) paid $3,000.50...” x_1"], "table") == [
        "He said : “ No-one's ( ever ) paid $ 3,000.50 ... ” x_1"
    ]


def expected(text: str, words: str) -> dict[str, int]:
    """The measures of a text: those of words and letters by the split text, those of lines and lengths by its own."""
    whole = measure_document(text)
    if words == "spaces":
        return whole
    parted = measure_document(" ".join(words_of(text, words)))
    own = {name for name in whole if "line" in name or "paragraph" in name or name.startswith(("url", "repeated_"))}
    own |= {"bytes", "characters", "space_characters", "num_5characters", "num_10characters"}
    values = parted | {name: whole[name] for name in own}
    if words == "table":
        values["sentences"] = measure_document(" ".join(words_of(text, "scripts")))["sentences"]
    return values


@pytest.mark.parametrize("words", WORDS)
def test_measures(engine, words: str):
    names = tuple(Measure.__members__)
    for texts in (
        list(SAMPLES),
        [*SAMPLES[:1], *(text[:400] for text in real_documents(8))],
        ["plain", "", "text (a)"],
    ):
        values = measure_words(engine, frame_of(engine, texts)[TEXT], names, words)
        assert [*values] == [*names]
        for row, text in enumerate(texts):
            right = expected(text, words)
            assert {name: values[name][row] for name in names if values[name][row] != right[name]} == {}, (
                text,
                {name: right[name] for name in names if values[name][row] != right[name]},
            )
