# SPDX-License-Identifier: Apache-2.0
"""One nasty corpus for all tests, real documents with known duplicates, and Hypothesis strategies that repeat."""

import gzip
import json
import os
import random
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

PROJECT = Path(__file__).resolve().parent.parent
DATA = PROJECT / "tests" / "data"

LINE_ENDS = ("\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
SPACES = (" ", "\t", "\x1f", "\xa0", "\u1680", *map(chr, range(0x2000, 0x200B)), "\u202f", "\u205f", "\u3000")
# Look like white space and are none for str.split().
NOT_SPACES = ("\x00", "\u180e", "\u200b", "\u200c", "\u200d", "\u2060", "\ufeff")
BULLETS = ("•", "-", "*", "‣", "◦", "·", "–", "—", "●", "▪", "o")
CLOSERS = "\"')]}»”’"


def _plain() -> list[str]:
    return [
        "",
        " ",
        "\n",
        "\r\n",
        " \t \n \xa0 ",
        "a",
        "é",
        "漢",
        "🙂",
        "\x00",
        ".",
        "#",
        "…",
        "\U0010ffff \U0010fffd \ufffe",
        "one",
        "the quick brown fox",
        "The the THE tHe be BE to of and that have with with With",
        "A a AN an ARE are IS is THE the WAS was WERE were weren't A. (the)",
        "a\x00b \x00 \x00\x00 c\x00",
        "tab\tseparated\tvalues\t\t\tend",
        "x" * 8 + " " + "y" * 16 + " " + "z" * 17 + " " + "w" * 255 + " " + "v" * 256 + " " + "u" * 257,
        "short\n" + "b" * 29 + "\n" + "c" * 30 + "\n" + "d" * 31 + "\n  " + "e" * 28 + "\n  " + "f" * 29,
    ]


def _scripts() -> list[str]:
    return [
        "👨‍👩‍👧‍👦 👍🏽 🇫🇷 🏳️‍🌈 ❤️ done",
        "e\u0301 n\u0303 o\u0308\u0323 \u0301alone \u0f71\u0f72",
        "Ａｌｐｈａ １２３ ①② ⅧⅨ ⅷ ²³ ½ ٣٤ ०१ 𝟘𝟙 𝔸𝕓 Ⓐⓐ ǅ ª º ʰ ß ẞ İ ı ſ",
        "مرحبا بالعالم، هذا نص؟ شكرا. مرحبا بالعالم",
        "שלום עולם \u200fטקסט\u200e (ימין)",
        "中文沒有空格。這是第二句！第三句？「引號」『內』【標題】々〇〆",
        "ひらがな カタカナ ｶﾀｶﾅ ー 漢字かな交じり文。",
        "ภาษาไทยไม่มีช่องว่าง ๑๒๓ ลาว ພາສາລາວ ភាសាខ្មែរ។ မြန်မာဘာသာ။",
        "한국어 문장입니다. 띄어쓰기가 있다!",
        "हिन्दी वाक्य। दूसरा वाक्य॥ अंत।",
        "Ελληνικά ΣΊΣΥΦΟΣ; Русский ТЕКСТ!",
        "𠀀𠀁 𝒳𝒴 𐐀𐐨 💩",
        "(a) [b] {c} ⟨d⟩ <e> «f» 「g」 （h） ((()))",
        "! \" # % & ' ( ) * , - . / : ; ? @ [ \\ ] _ { } ¡ § « ¶ · » ¿",
        "‐ ‑ – — ‘ ’ “ ” „ † • ‰ ′ ‹ › ‽ ⁇ 、 。 $ + < = > ^ ` | ~",
    ]


def _spaces() -> list[str]:
    return [
        *(f"one{end}two{end}{end}one{end} {end}two{end}" for end in LINE_ENDS),
        *(f"a{end}" * 3 + f"{end}b" for end in LINE_ENDS),
        "a\r\n\nb\n\rc\r\rd\n\n\r\ne\r",
        "\r",
        "\r\r\n\n",
        "\n\n\nlead\nand trail\n\n\n",
        "no end of line at the end\nlast",
        "".join(f"a{space}b" for space in SPACES),
        "".join(f"a{char}b" for char in NOT_SPACES),
        " ".join(NOT_SPACES),
        "\xa0\u3000indented\u2003\n\u2009• bullet\u202f\n\u3000…\u3000",
        "   \n\t\n \xa0\n",
    ]


def _marks() -> list[str]:
    return [
        *("." * count for count in range(1, 8)),
        *(f"end{'.' * count} \nend{'.' * count}\t" for count in range(1, 8)),
        "a....b.. .c … …… ...… .…. ......",
        "dots..\n.\nsplit by a line end..\r\n..",
        "# ## ### #tag a#b ＃ # ... #… ...#",
        "?! ... !!! -- -- :: ** ,,",
        "\n".join(f"{bullet} item {bullet}" for bullet in BULLETS),
        "\n".join(f"  \t{bullet}{bullet}glued" for bullet in BULLETS),
        "\n".join(BULLETS),
        "- a\n\n- b\n\n  \n* c\n•\n-",
        "One. Two! Three? Four… Five。 Six！ Seven？ Eight। nine",
        "He said \"Yes.\" (Really?) [no!] {ok.} »si.» 'q.' “r.” ’s.’ t.)]}»”’ end",
        'Closers alone. ) " ]',
        " ".join(f"w.{closer} {closer} {closer}. w{closer}" for closer in CLOSERS),
        "\n".join(f"line ends in {char} " for char in ".!?\"'。！？”’…,;:)»।．"),
        "no sentence end at all",
        "e.g. 3.14 v1.2.3 ... . ! ?",
    ]


def _urls() -> list[str]:
    return [
        "http:// https:// http://x https://x www. www.x",
        "wwwwww.x wwww.y xwww.z www.www.www. WWW.x Www.y",
        "https://https://x http://www.x www.http://x xhttp://y hhttp://z",
        "htt http http: http:/ https https: https:/ httpss://x http:///x hTTp://x",
        "see http://example.com/a?b=c#d, and\nwww.example.org/…\u3000http://é.fr\xa0end",
        "http://\nx www.\ny https://\u2028z www.\x1fq",
        "www.",
        "http://",
        "ends with www",
        "www.a" * 5,
    ]


def _repeats() -> list[str]:
    alphabet = [f"w{i}" for i in range(12)]
    return [
        *(" ".join(["a"] * count) for count in (2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 19, 20, 21, 33)),
        *(" ".join(alphabet[:n] * 3) for n in range(2, 12)),
        *(" ".join([*alphabet[:n], "x", *alphabet[:n], "y", *alphabet[:n]]) for n in range(2, 12)),
        *(" ".join(alphabet[:n] + alphabet[1 : n + 1] + alphabet[:n]) for n in range(5, 11)),
        "a b a b a b a b c a b a b a b a b a b a b",
        "a b c a b d a b c a b c d a b c d e a b c d e",
        "x y y x x y y x x y",
        "ab c a bc ab c a bc abc",
        "long longer longest long longer longest a b a b",
        "aa bb cc aa bb dd ee cc dd ee cc",
        "Case case CASE case Case case",
        "é e\u0301 é e\u0301 é e\u0301 é",
    ]


def _duplicates() -> list[str]:
    return [
        "same\nsame\nsame",
        "same\r\nsame\nsame\rsame",
        "same\nsame \nsame\t\n same\nsame ",
        "p one\np two\n\np one\np two\n\np one\np two ",
        "p one\r\np two\r\n\r\np one\np two\n \t\np one\rp two",
        "a\nb\n\na\n\nb\n\na\nb\n",
        "ab\n\na\nb\n\nab\n\na\nb",
        "\n\n\na\n\n\n\na\n\n",
        " \na\n \na\n\t\nb\n",
        "head\n\nbody\nbody\n\nhead\n\nbody\nbody\n\ntail",
        "x\n\ny\n\nx\ny\n\nx\n\ny",
        "\n".join(f"a{gap}b" for gap in ("", *SPACES, "  ", " \t", "\t ", *NOT_SPACES)) * 2,
        "\n\n".join(f"{gap}a b{gap}" for gap in SPACES),
    ]


def _fences() -> list[str]:
    code = "code\ncode\n}\n}"
    made = [
        f"{before}{opening}\n{code}\n\n{closing}\ncode\ncode\n"
        for before in ("", "~~~\n", "```x\n")
        for opening in ("```", "``` py", "````", "~~~", "~~~ `x", "  ~~~~a", "```a`b", "``", "-```", "\u3000```")
        for closing in ("```", "````", "~~~~ ", "``` x", "\t~~~", "")
    ]
    return [*made, "\r\n".join(made), "ab\nab\nabc\nabc\n漢字\n漢字\n漢-字 й\n漢-字 й\n1 a²b 3c\n1 a²b 3c\n"]


def _neighbours() -> list[str]:
    """Documents whose bytes would mean something together: a buffer holds them one after the other."""
    return [
        *("http", "://x", "https:", "//x", "https:/", "/x", "http", "s://x", "www", ".x", "www.", "x", "ww", "w.x"),
        *("x\r", "\nx", "end..", ".", "end.", "..", "th", "e", "a ", " a", "same\n", "same", "p\n\n", "p\n"),
    ]


def _long() -> list[str]:
    random_words = random.Random(7)
    vocabulary = [f"{chr(97 + i % 26)}{i}" for i in range(400)]
    words = [random_words.choice(vocabulary) for _ in range(30_000)]
    return [
        "x" * 1_000_000,
        "é" * 500_000 + " 漢" * 10,
        " ".join(words)[:100_000],
        "ab " * 3_000,
        "\n".join(f"line {i % 97}" for i in range(5_000)),
        "." * 10_001,
        "\n" * 5_000,
        "()" * 400 + " " + "A" * 700 + "7" * 700,
    ]


NASTY: list[str] = [
    *_plain(),
    *_scripts(),
    *_spaces(),
    *_marks(),
    *_urls(),
    *_repeats(),
    *_duplicates(),
    *_fences(),
    *_neighbours(),
    *_long(),
]


@cache
def real_records() -> list[dict[str, Any]]:
    """The real documents, in English and 21 other languages: `tests/data/README.md` says whose they are."""
    return [json.loads(line) for line in gzip.decompress((DATA / "corpus.jsonl.gz").read_bytes()).splitlines()]


def real_documents(limit: int | None = None, language: str = "") -> list[str]:
    """The texts of the first `limit` real documents, or of those in one language."""
    return [each["text"] for each in real_records() if language in ("", each["language"])][:limit]


def real_pairs() -> list[dict[str, Any]]:
    """All pairs of real documents whose word 5-grams have a Jaccard similarity `j` of 0.5 or more."""
    return [json.loads(line) for line in gzip.decompress((DATA / "pairs.jsonl.gz").read_bytes()).splitlines()]


def corpora() -> dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """Documents and pairs of each corpus with known pairs: ours, and real_20mb if the folder that CURATION_TEST_DATA
    names has it."""
    found = {"corpus": (real_records(), real_pairs())}
    paths = [Path(os.environ.get("CURATION_TEST_DATA", ""), f"real_20mb.{kind}") for kind in ("jsonl", "pairs.jsonl")]
    if all(path.is_file() for path in paths):
        files = [path.read_bytes() for path in paths]
        documents, pairs = ([json.loads(line) for line in file.split(b"\n") if line] for file in files)
        found["real_20mb"] = documents, pairs
    return found


def write_real_documents(folder: Path) -> Path:
    """Write corpus.jsonl, and what is known of its copies as benchmarks read it; return the first path."""
    flags = [{"id": each["id"], "kind": each.get("kind", "orig"), "of": each.get("of")} for each in real_records()]
    for name, records in (("corpus", real_records()), ("corpus.flags", flags), ("corpus.pairs", real_pairs())):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records), "utf-8")
    return folder / "corpus.jsonl"


_WORDS = ("a", "b", "a b", "the", "The", "of", "é", "漢字", "ไทย", "ǅ", "Ⅷ", "²", "7", "a\u0301", "🙂", "0123456789")
_MARKS = ("...", "…", "....", ".", "!", "?", "।", "#", "-", "•", "*", '"', "’", ")", "»", "⟨", "_", ",")
_URL_PIECES = ("http://", "https://", "www.", "ww", "http", "s://", "/", ":")
_SEPARATORS = (" ", " ", " ", "  ", "\n", "\n", "\n\n", " \n", "\n \n", *LINE_ENDS, *SPACES, *NOT_SPACES)


def _joined(words: st.SearchStrategy[str], separators: st.SearchStrategy[str], most: int) -> st.SearchStrategy[str]:
    pairs = st.tuples(words, separators).map("".join)
    return st.lists(pairs, max_size=most).map("".join)


def characters() -> st.SearchStrategy[str]:
    """Characters assigned in this Python's Unicode version, which is older than the toolkit's; no surrogates."""
    return st.characters(exclude_categories=("Cs", "Cn"))


def texts() -> st.SearchStrategy[str]:
    """Documents of few different words, marks and lines, so that n-grams, lines and paragraphs repeat."""
    mixed = _joined(st.sampled_from((*_WORDS, *_MARKS, *_URL_PIECES, "")), st.sampled_from((*_SEPARATORS, "")), 40)
    repeats = _joined(st.sampled_from("aab"), st.sampled_from((" ", " ", " ", "\n")), 60)
    lines = _joined(
        st.sampled_from(("one", "two ", "- three", "", " ", "a b", "a\tb", "```", " ````py", "~~~", "~~~ x")),
        st.sampled_from(LINE_ENDS),
        20,
    )
    wild = st.text(characters(), max_size=60)
    return st.one_of(mixed, repeats, lines, wild, st.tuples(mixed, repeats, lines).map("".join))


def document_lists(most: int = 4) -> st.SearchStrategy[list[str]]:
    """Several documents at once: what one document leaves in reused scratch must not show in the next."""
    return st.lists(texts(), min_size=1, max_size=most)


def assigned_characters() -> Iterator[str]:
    """Every character of this Python's Unicode version, surrogates left out."""
    return (char for char in map(chr, range(0x110000)) if unicodedata.category(char) not in ("Cs", "Cn"))


def _grams(text: str) -> set[tuple[str, ...]]:
    words = text.lower().split()
    return {tuple(words[k : k + 13]) for k in range(max(1, len(words) - 12))}


@cache
def real_pieces() -> list[str]:
    """Pieces of real documents, of 300 to 1,000 characters, in a random order; no two share 13 words in a row."""
    seen: set[tuple[str, ...]] = set()
    found = []
    texts = [*dict.fromkeys(real_documents(2000))]
    random.Random(5).shuffle(texts)
    for piece in (text[k : k + 1000] for text in texts for k in range(0, len(text), 1000)):
        if len(piece) > 300 and not _grams(piece) & seen:
            found.append(piece)
            seen |= _grams(piece)
    return found
