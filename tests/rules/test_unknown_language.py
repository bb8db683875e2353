# SPDX-License-Identifier: Apache-2.0
"""Documents whose language is not known, or whose label their words contradict: the set `gopher_multilingual`."""

from types import ModuleType

import pyarrow as pa

from curation.rules.columns import count_matches
from curation.rules.fineweb2 import END_MARKS, SENTENCE_END
from tests.corpus import NASTY, real_documents
from tests.oracle.rules import sentence_ends
from tests.rules.test_fineweb2 import LEFT_OUT, OF_NGRAMS, verdict_of

OWN, FEW_WORDS, FEW_ENDS = "gopher_multilingual", "too_few_stop_words", "too_few_sentence_ends"
ANY = dict.fromkeys(OF_NGRAMS, "off")
# Thirteen words a line, of which none is a stop word of Tatar or of English.
LINE = "барлык кешеләр дә азат {} булып туалар һәрберсе акыл вөҗдан белән бүләкләнгән шуңа"
LINES = [LINE.format(f"мәртәбә{letter}") for letter in "абвгдежзик"]
MENU, PROSE = "\n".join(LINES), "\n".join(f"{line}." for line in LINES)
FEW = "\n".join([f"{LINES[0]}. {LINES[1]}.", *LINES[2:]])
SHARE = 2 / 130  # of its words that end a sentence
MEMBERS = [  # language, text, and what it breaks: reason, value, bound
    ("tt", MENU, (FEW_WORDS, 0, 2)),
    ("tt", FEW, (FEW_WORDS, 0, 2)),
    ("tt", PROSE, None),  # a bot wrote most of the text that the list of Tatar is from
    ("tt", f"һәм халык {MENU}", None),
    ("en", PROSE, (FEW_WORDS, 0, 2)),
    ("xx", MENU, (FEW_ENDS, 0, 0.01)),  # a label without bounds
    (None, MENU, (FEW_ENDS, 0, 0.01)),
    (None, f"the of and {MENU}", (FEW_ENDS, 0, 0.01)),  # no English either
    (None, FEW, None),
    (None, PROSE, None),
    (None, "\n".join(LINES[:3]), ("too_few_words", 39, 50)),
]


def test_text_is_judged_by_its_sentences_where_stop_words_cannot_tell(engine: ModuleType):
    labels, texts, broken = zip(*MEMBERS, strict=True)
    rules = [{"set": OWN, "other": "und", "override": ANY}]
    assert verdict_of(engine, [*texts], rules, [*labels]) == [*broken]
    rules = [{"set": OWN, "other": "en", "override": ANY}]
    assert verdict_of(engine, [PROSE, MENU], rules, [None, "und"]) == [(FEW_WORDS, 0, 2), (FEW_ENDS, 0, 0.01)]
    for lowest, expected in ((0.015, None), (0.02, (FEW_ENDS, SHARE, 0.02))):
        rules = [{"set": OWN, "other": "und", "override": ANY | {"und": {FEW_ENDS: {"min": lowest}}}}]
        assert verdict_of(engine, [FEW], rules, [None]) == [expected]


def test_the_published_set_judges_by_stop_words_alone(engine: ModuleType):
    rules = [
        {"set": "fineweb2", "other": "keep", "override": ANY | dict.fromkeys(("duplicate_lines", *LEFT_OUT), "off")}
    ]
    assert verdict_of(engine, [PROSE, MENU], rules, ["tt", None]) == [(FEW_WORDS, 0, 2), None]


def made(count: int) -> str:
    """Prose of different lines, which have different words."""
    return "\n\n".join(f"The page{k} and the words{k} of line{k} that have end{k}." for k in range(count))


def around(line: str) -> str:
    """The prose, each paragraph of it before and after this line."""
    return made(20).replace("\n\n", f"\n\n{line}\n\n")


CODE = "```jsx\nrender(<App />);\n  </div>\n```"
REPEATED = "This line of prose is repeated"
LINES_OF_OTHERS = [  # of a text in English: whether it is kept
    (around("}\n\n---"), True),
    (around("**Q:**"), True),
    (around("</>\n\n{\n\n);"), True),
    (around("Anna:"), True),  # 5 of 47 characters
    (around(f"Anna:\n\n{CODE}"), True),
    (around("~~~\nthe same code\n~~~~"), True),
    (around("| - | --- | , |"), True),
    (around(REPEATED), False),
    (around(f"```\n\n{REPEATED}"), False),  # each second fence closes what the one before opens
    (around(f"{CODE}\n\n{REPEATED}"), False),
    (f"```\n{around(REPEATED)}", False),  # not closed
    (f"{made(8)}\n\n{'x1 2 3 4 5 6 7 8 9 '.join('abcdefgh')}", False),  # numbers are words
]


def test_repeated_lines_count_by_their_prose(engine: ModuleType):
    rules = [{"set": OWN, "other": "und", "override": dict.fromkeys(OF_NGRAMS, "off")}]
    texts, kept = zip(*LINES_OF_OTHERS, strict=True)
    found = verdict_of(engine, [*texts], rules, "en")
    assert [gone is None for gone in found] == [*kept], found


def test_ends_of_sentences_are_those_of_the_plain_definition():
    marks = {
        chr(code)
        for codes in END_MARKS.split()
        for code in range(int(codes.partition("-")[0], 16), int(codes.rpartition("-")[2], 16) + 1)
    }
    made = {
        "Dr. J. Roe came.": 2, "он 3. мая.": 1, "ok!» ok?) ok.com ok .": 3, "है । क्या ?": 2, "你好。好吗？「好」。": 2,
        "ab\u3000.\u3000c": 1, "a.b.": 0, "한국어입니다.\n": 1, "ആണ്\u200c. ab\u00ad\u200c.": 1, "እዮም፡፡እዮም፡እዩ": 1,
    }  # fmt: skip
    texts = [*made, *NASTY, *real_documents(20)]
    found = count_matches(pa.chunked_array([texts], pa.large_string()), SENTENCE_END).tolist()
    assert found[: len(made)] == [*made.values()]
    assert found == [sentence_ends(text, marks) for text in texts]
