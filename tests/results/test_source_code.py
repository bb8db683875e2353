# SPDX-License-Identifier: Apache-2.0
"""Documents of source code are known by the forms of their lines, and a warning names inputs that are mostly code."""

import pytest

from curation.recipes.recipe import convert_recipe, load_recipe
from curation.record.lost_groups import SampledDocument
from curation.record.source_code import is_code, prose_stages, warn_of_code

CODE = {
    "python": '"""Words of a docstring.\n\nMore words.\n"""\n\nimport os\nfrom a.b import c\n\ndef f(x):\n    return x',
    "c": '/* Copyright.\n   Some words. */\n#include <stdio.h>\n\nint main(void)\n{\n  puts("x");\n}\n',
    "javascript": "const a = require('a')\n\nexports.b = (c) => {\n  return a(c) || null\n}\n",
    "shell": "#!/bin/sh\nset -e\nfor x in *; do\n  y=$(date)\n  run \\\n    --now\ndone\n",
    "css": ".a {\n  color: red;\n}\nb > c {\n  margin: 0\n}\n",
    "json": '{\n  "a": [\n    1,\n    2\n  ],\n  "b": {}\n}\n',
    "licence": "// Copyright of somebody.\n// Licensed under it.\n// You may not use this file\n// except by it.\n",
}
PROSE = {
    "wrapped": "The whale is a mammal, and\nit breathes air; the fish\ndoes not. It lives (so\nthey say) in the sea:\n",
    "html": "<div class=\"a\">\n<p>A text; of words.\n</p>\n<a href='x'>b</a>\n<br/>\nMore of it.\n",
    "markdown": "# Whales\n\n* They sing.\n* They eat.\n\nThe file(s) of open(2) have them.\n\nThey sleep.\n",
    "letter": "Dear Ann,\n\nI am well.\n\nYours,\nBob\n",
    "chinese": "鲸鱼是哺乳动物。\n它们呼吸空气；\n它们唱歌。\n",
    "arabic": "الحوت حيوان ثديي،\nيتنفس الهواء؛\nويعيش في البحر.\n",
    "arithmetic": "The sum of 2 and 3\nis 5, and x <= y holds.\nThe rest is left\nto the reader.\n",
    "empty": "",
}


def test_forms_of_lines_tell_source_code():
    assert [name for name, text in (CODE | PROSE).items() if is_code(text)] == [*CODE]


def sampled(source: str, texts: list[str], lost: tuple[str, str] | None = None) -> list[SampledDocument]:
    return [SampledDocument(source, text, {}, lost, 2.0) for text in texts]


@pytest.mark.parametrize(("prose", "stages", "is_warned"), [(3, ["f"], True), (7, ["f"], False), (3, [], False)])
def test_an_input_that_is_mostly_code_has_a_warning(prose: int, stages: list[str], is_warned: bool):
    """4 of 7 documents with code are kept, as is an input of prose, and one that is too small."""
    code, others = [*CODE.values()], ["A text of words."] * prose
    sample = [*sampled("a", code[:3], ("f", "r")), *sampled("a", code[3:4], ("g", "r")), *sampled("a", code[4:])]
    sample += [*sampled("a", others), *sampled("small", code[:4]), *sampled("prose", [*PROSE.values()])]
    assert [*warn_of_code(sample, stages)] == [
        f"input 'a': about 14 of {14 + 2 * prose} documents look like source code, by a sample. The rules of f are for "
        "prose, and remove about 6 of them. Read this input in a recipe of its own, without such rules"
    ] * is_warned


def test_stages_for_prose_have_rules_on_words_and_sentences():
    recipe = load_recipe("default")
    assert prose_stages(dict(zip(recipe.stage_names, recipe.stages, strict=True))) == ["filter"]
    rules = [{"measure": "bytes", "max": 9}, {"column": "stars", "min": 1}, {"measure": "words", "min": 2}]
    lines = [{"measure": "punctuated_lines", "min": 1}]
    recipe = convert_recipe({
        "input": [{"path": "a"}], "stages": [{"filter": {"rules": rules}}, {"lines": {"rules": lines}}],
    })  # fmt: skip
    assert prose_stages(dict(zip(recipe.stage_names, recipe.stages, strict=True))) == ["lines"]
