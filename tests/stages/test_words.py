# SPDX-License-Identifier: Apache-2.0
"""The setting `words` of recipes and stages: what follows it, and what is refused."""

import hashlib
import itertools
from pathlib import Path

import pandas as pd
import pytest

import curation
from curation.kernels.word_lists import LIST_PATH, load_word_lists
from curation.recipes.recipe import convert_recipe, load_recipe
from curation.results.report.marks import broken_spans, removing_spans
from curation.rules.decide import expand_rules
from curation.rules.grammar import Rule
from curation.running.run import run
from curation.stages import Filter, FuzzyDedup
from curation.stages.corpus.similarity import COMPARISONS, ShingleSettings, compared_text, joined_text
from curation.stages.invoke import apply_stage
from tests.conftest import frame_of
from tests.corpus import NASTY
from tests.oracle.words import listed
from tests.runs import data_digests, kept_rows, recipe_of, records_of, removed_rows

CHINESE = "我们用程序处理文件，每天都有很多新的数据。研究人员认为，高质量的文本对训练语言模型非常重要。"
# The same text, but for one word of 24 and a mark.
NEAR = "我们用程序处理文件，每天都有很多新的数据。研究人员认为，高质量的文本对训练语言模型十分重要！"
THAI = "ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำแน่นอน"


def frame(*texts: str) -> pd.DataFrame:
    return pd.DataFrame({"text": texts})


def test_the_lists_are_those_of_icu_78():
    assert hashlib.sha256(LIST_PATH.read_bytes()).hexdigest() == (
        "10b884f71e946a92c5558929b422f0244dd683fe7fe7a4003e7b11dbc6bae5ce"
    )
    words = listed()
    assert (len(words), words["中国"], words["ภาษา"], words["東京"]) == (495_045, 51, 1, 61)
    tables = load_word_lists()
    assert int((tables.costs != 255).sum()) == len(words)
    assert not any(table.flags.writeable for table in tables)


def test_rules_count_these_words():
    rule = {"measure": "words", "min": 12}
    assert curation.filter(frame(CHINESE), rule)["text"].tolist() == []
    for words in ("scripts", "table"):
        assert curation.filter(frame(CHINESE), rule, words=words)["text"].tolist() == [CHINESE]
    rules = Filter(rules=[Rule(measure="words", min=5)], words="scripts")
    explained = curation.explain(frame(THAI), rules)
    assert explained["words"].tolist() == [11] and explained["kept"].tolist() == [True]


def test_measures_of_other_words_are_computed_again():
    known = curation.measure(frame(CHINESE), ["words"])
    assert curation.filter(known, {"measure": "words", "min": 12}, words="scripts")["text"].tolist() == [CHINESE]
    other = curation.measure(frame(CHINESE), ["words"], words="scripts")
    assert curation.filter(other, {"measure": "words", "min": 12})["text"].tolist() == []


def test_listed_words_are_words_of_the_script():
    rates = curation.measure(frame(CHINESE), listed_words=("文本", "数据"), words="table")["listed_words"]
    assert rates.tolist() == [2 / curation.measure(frame(CHINESE), ["words"], words="table")["words"][0]]
    assert curation.measure(frame(CHINESE), listed_words=("文本", "数据"))["listed_words"].tolist() == [0]


def test_duplicates_are_compared_by_these_words(tmp_path: Path):
    texts = frame(CHINESE, NEAR)
    assert len(curation.fuzzy_dedup(texts, ngram=1, threshold=0.7)) == 2
    assert curation.fuzzy_dedup(texts, ngram=1, threshold=0.7, words="scripts")["text"].tolist() == [CHINESE]
    assert len(curation.ngram_dedup(texts, ngram=3, min_seen=0.6)) == 2
    assert curation.ngram_dedup(texts, ngram=3, min_seen=0.6, words="table")["text"].tolist() == [CHINESE]
    quiz = tmp_path / "quiz.txt"
    quiz.write_text("高质量的文本对训练语言模型")
    assert len(curation.decontaminate(texts, quiz, ngram=6)) == 2
    assert len(curation.decontaminate(texts, quiz, ngram=6, words="scripts")) == 0


# Texts of scripts without spaces, with names and numbers of others, in which lines end too.
MIXED = (
    "色彩空间有 sRGB、AdobeRGB 和 ProPhotoRGB，人类视觉利用 CIE 1931 色度图。It is big，该图呈马蹄形（２０２４年）。",
    "而家啲人用 Google Chrome 同埋 Firefox 睇 PDF 文件，唔使再安装 Adobe Reader 12.5 咁大嘅程式嚟开佢哋嘅文件喇。",
    "このページでは React コンポーネントと props の考え方を説明します。ECMAScript 2015 の class も使えます。",
    "ในภาษา HTML นั้น ฟอร์มจะเก็บ state ไว้เป็นของตัวเองอยู่แล้ว และ React จะอัพเดทค่าด้วย setState(2.0) เท่านั้น",
    "ທຸກຄົນ ເກີດມາມີສິດ United Nations ເສລີພາບ ແລະ ມີກຽດສັກສີ General Assembly ສະເໝີພາບ ຕໍ່ໜ້າກົດໝາຍ 1948",
    "មនុស្សទាំងអស់កើតមកមានសេរីភាព Human Rights និងសមភាព ក្នុងសេចក្ដីថ្លៃថ្នូរ United Nations និងសិទ្ធិ 1948",
    "လူတိုင်းသည် တူညီ လွတ်လပ်သော United Nations ဂုဏ်သိက္ခာဖြင့် လည်းကောင်း၊ Human Rights အခွင့်အရေးများဖြင့် 1948",
)
WRAPS = ("\n", "\r\n", "\n    ", " \n\u3000\u3000", "\n\n")  # what begins another line


def wrapped(text: str) -> list[str]:
    """Copies of a text with lines of 7 and of 30 characters, and with a line for each part between spaces."""
    cut = (end.join(text[k : k + size] for k in range(0, len(text), size)) for end in WRAPS for size in (7, 30))
    return [*cut, text.replace(" ", "\n")]


@pytest.mark.parametrize("words", ["scripts", "table"])
@pytest.mark.parametrize("compare", ["exact", "visible"])
def test_line_ends_do_not_hide_copies(engine, words: str, compare: str):
    settings = ShingleSettings(COMPARISONS[compare], 5, False, words)

    def compared(function, texts: list[str | None]) -> list[str]:
        text = function(engine, frame_of(engine, texts)["text"], settings)
        return engine.to_arrow(text.to_frame("text")).column("text").to_pylist()

    copies = [[text, *wrapped(text)] for text in MIXED]
    found = compared(joined_text, ["the first", None, *itertools.chain(*copies)])[2:]
    size = len(copies[0])
    assert all(len({*found[k : k + size]}) == 1 for k in range(0, len(found), size))
    # A tenth of the characters; other texts are compared as they are.
    texts = ["aa\nbb cc ddd 中", "aa\nbb cc dddd 中"]
    assert compared(joined_text, texts) == ["aa bbccd d d 中", texts[1]]
    others = [
        "a text of a few\nlines in English 中文\n" * 3,
        "한국어 문서의 줄은 짧을 수도\n길 수도 있다 字",
        None,
        "",
        " \n",
        *NASTY[:9],
    ]
    assert compared(joined_text, others) == compared(compared_text, others)


def test_wrapped_copies_are_removed():
    text = frame(MIXED[0], *wrapped(MIXED[0]))
    assert curation.fuzzy_dedup(text, words="scripts", compare="folded").index.tolist() == [0]
    assert len(curation.fuzzy_dedup(text, compare="folded")) == 3
    assert curation.ngram_dedup(text, words="scripts").index.tolist() == [0]
    assert len({*map(tuple, curation.minhash(text, words="scripts")["minhash"])}) == 1


def test_a_recipe_sets_the_words_of_its_stages(tmp_path: Path):
    data = tmp_path / "zh.jsonl"
    data.write_bytes(records_of([CHINESE, NEAR, "two words", THAI]))
    stages = [
        {"kind": "filter", "rules": [{"measure": "words", "min": 5, "reason": "short"}]},
        {"kind": "fuzzy_dedup", "ngram": 1, "threshold": 0.7},
        {"kind": "filter", "name": "spaced", "words": "spaces", "rules": [{"measure": "words", "max": 3}]},
    ]
    recipe = recipe_of(data, stages=stages, words="scripts")
    assert [stage.words for stage in recipe.stages] == ["scripts", "scripts", "spaces"]
    digests = []
    for batch_bytes in (0, 100):
        out = tmp_path / f"out{batch_bytes}"
        run(recipe, out, engine="cpu", progress=False, **({"slice_bytes": batch_bytes} if batch_bytes else {}))
        digests.append(data_digests(out))
        assert [row[-1] for row in kept_rows(out)] == [CHINESE, THAI]
        assert len(removed_rows(out)) == 2
    assert digests[0] == digests[1]
    plain = recipe_of(data, stages=stages)
    assert [stage.words for stage in plain.stages] == ["", "", "spaces"]


def test_rows_of_any_index_keep_their_words(tmp_path: Path):
    """A selection of rows keeps the index of the whole frame."""
    quiz = tmp_path / "quiz.txt"
    quiz.write_text("高质量的文本对训练语言模型")
    chosen = frame("left out", "two words", CHINESE, "one", NEAR).iloc[[1, 2, 4]]
    left = curation.decontaminate(chosen, quiz, ngram=6, words="scripts")
    assert left["text"].tolist() == ["two words"] and left.index.tolist() == [1]
    rule = {"listed": {"words": ["文本", "数据"], "as": "stop_word"}, "min_count": 2}
    assert curation.filter(chosen, rule, words="table").index.tolist() == [2, 4]
    rule["min_count"] = 1  # a mark belongs to the word before it
    assert curation.filter(chosen, rule, words="scripts").index.tolist() == [2, 4]
    assert curation.filter(chosen, rule).index.tolist() == []


def test_a_setting_changes_the_words_or_the_measure():
    recipe = load_recipe(
        "default", settings=["stages.filter.words=table", "stages.filter.words.min=20", "words=scripts"]
    )
    stages = {stage.kind: stage for stage in recipe.stages}
    assert (stages["filter"].words, stages["fuzzy_dedup"].words) == ("table", "scripts")
    rules = [rule for rule in expand_rules(stages["filter"].rules) if rule.name == "too_few_words"]
    assert [{*rule.limits[0, rule.member]} for rule in rules] == [{20}, {20}]


def test_marks_are_of_these_words():
    stage = Filter(rules=[Rule(measure="top_2gram_count", max=1, reason="top")], words="table")
    text = "中国人民，中国人民。"
    (rule,) = stage.shown_rules().of_documents
    assert removing_spans(stage, "top", text) == [(0, 4), (5, 9)]
    assert broken_spans(rule, text) == []


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (lambda: Filter(rules="gopher", words="table2"), "words must be spaces, scripts or table, not 'table2'"),
        (
            lambda: FuzzyDedup(unit="character", words="scripts"),
            "the setting `words: scripts` has no effect with `unit: character`",
        ),
        (lambda: curation.measure(frame("a"), ["words"], words="jieba"), "words must be spaces, scripts or table"),
    ],
)
def test_wrong_words_are_refused(stage, message: str):
    with pytest.raises((ValueError, curation.RecipeError), match=message):
        stage()


def test_a_recipe_with_wrong_words_is_refused(tmp_path: Path):
    (tmp_path / "r.yaml").write_text("words: chinese\nstages: [{kind: filter, rules: gopher}]\n")
    with pytest.raises(curation.RecipeError, match="words must be spaces, scripts or table, not 'chinese'"):
        load_recipe(tmp_path / "r.yaml")


# Listed words


LISTED = ["我们用Python处理文件。", "研究人员 文件", "we use Python", None, "ภาษาไทยเป็นภาษา", "文件文件"]


@pytest.mark.parametrize(
    ("words", "counts"), [("", [0, 1, 1, 0, 0, 0]), ("scripts", [2, 1, 1, 0, 1, 1]), ("table", [2, 1, 1, 0, 1, 1])]
)
def test_entries_are_found_by_these_words(engine, tmp_path: Path, words: str, counts: list[int]):
    path = tmp_path / "words.txt"
    path.write_text("文件\npython\nภาษา\n研究者\n", "utf-8")
    rules = [{"listed": {"file": str(path), "as": "word"}, "max_count": 0}]
    stage = convert_recipe({"stages": [{"kind": "filter", "rules": rules, "words": words}]}).stages[0]
    frame = frame_of(engine, LISTED)
    for each in (stage, stage.prepare(tmp_path)):
        assert each.count_patterns(engine, frame)["text_listed"].tolist() == counts
        kept = engine.to_arrow(apply_stage(engine, frame, each)[0]).column("row").to_pylist()
        assert kept == [row for row, count in enumerate(counts) if not count]
    either = [{"any": [rules[0], {"words": {"max": 0}}]}]
    stage = convert_recipe({"stages": [{"kind": "filter", "rules": either, "words": words}]}).stages[0]
    assert engine.to_arrow(apply_stage(engine, frame, stage)[0]).column("row").to_pylist() == kept


def test_entries_of_several_words_are_divided_too(engine, tmp_path: Path):
    path = tmp_path / "phrases.txt"
    path.write_text("处理文件\n语言 模型\n" + "文件" * 17 + "\n", "utf-8")
    rules = [{"listed": {"file": str(path), "as": "word"}, "max_count": 0}]
    stage = convert_recipe({"stages": [{"kind": "filter", "rules": rules, "words": "scripts"}]}).stages[0]
    texts = ["我们处理文件。", "处理 文件", "语言模型", "处理的文件", "语言"]
    assert stage.count_patterns(engine, frame_of(engine, texts))["text_listed"].tolist() == [1, 1, 1, 0, 0]
    assert stage.explain()[0].startswith(f"entries of {path} as word: 1 line without an entry: line 3")
    assert stage.explain()[-1] == f"entries of {path} as word: 2 entries"
    plain = convert_recipe({"stages": [{"kind": "filter", "rules": rules}]}).stages[0]
    assert plain.explain()[-1] == f"entries of {path} as word: 3 entries"
    assert plain.count_patterns(engine, frame_of(engine, texts))["text_listed"].tolist() == [0, 0, 0, 0, 0]


def test_a_list_serves_texts_and_other_columns(engine, tmp_path: Path):
    """A column other than the text is read by spaces, with the entries as they are."""
    path = tmp_path / "words.txt"
    path.write_text("处理文件\n", "utf-8")
    listed = {"file": str(path), "as": "word"}
    rules = [{"listed": listed, "max_count": 9}, {"column": "title", "listed": listed, "max_count": 9}]
    stage = convert_recipe({"stages": [{"kind": "filter", "rules": rules, "words": "scripts"}]}).stages[0]
    texts = ["我们处理文件。", "处理文件", "处理 文件"]
    frame = engine.with_columns(frame_of(engine, texts), {"title": frame_of(engine, texts)["text"]})
    for each in (stage, stage.prepare(tmp_path)):
        counts = each.count_patterns(engine, frame)
        assert {name: found.tolist() for name, found in counts.items()} == {
            "text_listed": [1, 1, 1], "title_listed": [0, 1, 0],
        }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "way", "is_found"),
    [
        ("", "word", False),
        ("scripts", "word", True),
        ("table", "word", True),
        ("spaces", "stop_word", False),
        ("table", "stop_word", True),
    ],
)
def test_lines_look_for_words_of_the_script(engine, tmp_path: Path, words: str, way: str, is_found: bool):
    path = tmp_path / "words.txt"
    path.write_text("文件\n", "utf-8")
    text = "我们处理文件。\n我们用程序。\ntwo words\n"
    rules = [{"listed": {"file": str(path), "as": way}, "max_count": 0}]
    stage = convert_recipe({"stages": [{"kind": "lines", "rules": rules, "words": words}]}).stages[0]
    frame = frame_of(engine, [text, "x", text])
    for each in (stage, stage.prepare(tmp_path)):
        outcome = apply_stage(engine, frame, each)[1]
        assert outcome.details["cut_units"] == 2 * is_found and (outcome.text is not None) == is_found
        if is_found:
            after = engine.to_arrow(engine.with_columns(frame, {"text": outcome.text})).column("text").to_pylist()
            assert after == ["我们用程序。\ntwo words\n", "x", "我们用程序。\ntwo words\n"]


def test_a_run_finds_listed_words_of_scripts(tmp_path: Path):
    data, path = tmp_path / "zh.jsonl", tmp_path / "words.txt"
    data.write_bytes(records_of([CHINESE, "two words", THAI, "文本"]))
    path.write_text("文本\nภาษา\n", "utf-8")
    stages = [{"kind": "filter", "rules": [{"listed": {"file": str(path), "as": "word"}, "max_count": 0}]}]
    digests = []
    for slice_bytes in (10_000, 60):
        out = tmp_path / f"out{slice_bytes}"
        recipe = recipe_of(data, stages=stages, words="scripts", output={"formats": []})
        run(recipe, out, engine="cpu", progress=False, slice_bytes=slice_bytes)
        assert [row[-1] for row in kept_rows(out)] == ["two words"]
        digests.append(data_digests(out))
    assert digests[0] == digests[1]
