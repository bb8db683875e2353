# SPDX-License-Identifier: Apache-2.0
"""A run over text without spaces between words says that rules on words mean little."""

import json
from pathlib import Path

import pytest

from curation.reading.inputs import Input
from curation.recipes.recipe import Output, Recipe
from curation.rules.grammar import Rule
from curation.running.run import run
from curation.stages import Filter

CHINESE = "這是一個沒有空格的句子。"
TIBETAN = "རྒྱལ་ཁབ་ཁག་གི་དབར་མཛའ་མཐུན་གྱི་འབྲེལ་བ་ཡར་རྒྱས་གོང་འཕེལ་གཏོང་རྒྱུར་འབད་བརྩོན་ཆེ་བསྐྱེད་དགོས་པ་དེ་ནི་ཧ་ཅང་གལ་གནད་ཆེ་བ་ཞིག་ཡིན། "
SHAN = "ၵူၼ်းၵူႊၵေႃႉ မီးသုၼ်ႇလႆႈ တႃႇၶီးၸိုၼ်ႈ၊ တႃႇလွတ်ႈလႅဝ်းထၢင်ႇႁၢင်ႊ လႄႈ တႃႇႁူမ်ႇလူမ်ႈၸူဝ်ႊပၢၼ်မၼ်း။ "
ETHIOPIC = "የሰውልጅሁሉሲወለድነጻናበክብርናበመብትምእኩልነትያለውነው"
BURMESE = "လူတိုင်း၌ အသက်ရှင်ရန် လွတ်လပ်ခွင့်နှင့် လုံခြုံစိတ်ချခွင့် ရှိသည်။ "
THAI = "ทุกคนมีสิทธิในการดำรงชีวิต เสรีภาพ และในความมั่นคงแห่งตัวตน "
LISTED = [CHINESE * 20, "日本語の文章には空白がありません。" * 9, THAI * 9, BURMESE * 9, f"x = 1;{CHINESE}" * 9]
ENGLISH = "This is a sentence with spaces between its words. "


def warnings_of(folder: Path, texts: list[str], words: str = "") -> list[str]:
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    stages = [Filter(rules="fineweb")]
    if words:
        stages = [Filter(rules=[Rule(measure="words", max=10_000)], words=words, name=name) for name in ("a", "b")]
    recipe = Recipe(
        input=[Input(path=str(folder / "a.jsonl"), keep_blank=True)], stages=stages, output=Output(formats=())
    )
    return run(recipe, folder / "out", engine="cpu").report["warnings"]


def test_unspaced_text_is_announced(tmp_path: Path):
    [warning] = warnings_of(tmp_path / "mixed", [CHINESE * 20, ENGLISH * 20])
    assert "without spaces" in warning and warning.startswith("filter: ")
    assert not warnings_of(tmp_path / "english", [ENGLISH * 20, CHINESE])


@pytest.mark.parametrize("words", ["scripts", "table"])
def test_text_without_a_list_of_words_is_announced_once(tmp_path: Path, words: str):
    others = [ENGLISH * 20, "A" * 5000, "https://example.org/" + "a" * 300, "0123456789" * 200, "12 " + "。" * 100, ""]
    divided = "\u1361".join([ETHIOPIC[:5]] * 40)
    texts = [*LISTED, *others, divided, TIBETAN * 3, TIBETAN, f"{TIBETAN}{ENGLISH[:20]}", SHAN * 4, ETHIOPIC * 4]
    found = [line for line in warnings_of(tmp_path / "mixed", texts, words) if "no list of words" in line]
    assert len(found) == 1 and found[0].startswith(f"a: 5 of {len(texts)} documents are mainly in scripts or ")
    assert "(Tibt 3, Ethi 1, Mymr 1)" in found[0] and "the column script of the stage measure" in found[0]


@pytest.mark.parametrize("words", ["scripts", "table"])
def test_text_with_lists_of_words_is_not_announced(tmp_path: Path, words: str):
    for number, text in enumerate([*LISTED, "ມະນຸດທຸກຄົນເກີດມາມີກຽດສັກສີ ສິດທິ ເສລີພາບ ແລະຄວາມສະເໝີພາບເທົ່າທຽມກັນ " * 5]):
        assert not any("no list" in line for line in warnings_of(tmp_path / str(number), [text] * 20, words))
    few = [*[ENGLISH * 20] * 99, TIBETAN]  # 1 % of the documents
    assert not any("no list" in line for line in warnings_of(tmp_path / "few", few, words))
