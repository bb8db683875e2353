# SPDX-License-Identifier: Apache-2.0
"""The recipes after other tools in plain Python, rule by rule: texts in, what is kept and removed out."""

import re
from collections.abc import Callable, Sequence

import unicodedata2

from tests.oracle import redaction, rules
from tests.oracle.line_dedup import line_dedup
from tests.oracle.pipelines import Chain, Language, Outcome, drop_near_duplicates, first_of
from tests.oracle.rewriting import compared, put_sentences_on_lines
from tests.oracle.rules import Verdict
from tests.oracle.substring_dedup import substring_dedup

POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
CITATION = re.compile(r"\[[0-9]*\]|\[edit\]|\[citation needed\]")
REMOVED = "removed: "  # before the reason of a line that removes its document
CutLine = Callable[[str], str | None]  # the reason for which a line is cut


def _lines(text: str) -> list[tuple[str, str]]:
    """Each line and its end."""
    whole = text.splitlines(keepends=True)
    return [(line, end[len(line) :]) for line, end in zip(text.splitlines(), whole, strict=True)]


def _cut(chain: Chain, stage: str, reason_of: CutLine, strip: bool = False, most: float = 1.0) -> None:
    def edited(text: str) -> tuple[str, str | None]:
        lines = [(line.strip() if strip else line, end) for line, end in _lines(text)]
        reasons = [reason_of(line) for line, _ in lines]
        fatal = next((reason for reason in reasons if reason and reason.startswith(REMOVED)), None)
        if fatal:
            return text, fatal.removeprefix(REMOVED)
        words = [len(line.split()) for line, _ in lines]
        lost = sum(count for count, reason in zip(words, reasons, strict=True) if reason)
        if lost > most * max(sum(words), 1):
            return text, "too_much_removed"
        kept = "".join(line + end for (line, end), reason in zip(lines, reasons, strict=True) if not reason)
        return kept, None

    chain.drop(stage, lambda text: edited(text)[1])
    chain.change(lambda text: edited(text)[0])


def _c4_lines(chain: Chain, marks: bool) -> None:
    def first(line: str) -> str | None:
        if max(map(len, line.split()), default=0) > 1000:
            return "max_word_characters"
        return "words" if len(line.split()) < 3 else None

    def second(line: str) -> str | None:
        if marks and not line.endswith((".", "?", "!", '"', "'")):
            return "no_terminal_mark"
        if marks and line.endswith("..."):
            return "ellipsis"
        lowered = line.lower()
        for phrase, reason in (("lorem ipsum", REMOVED + "lorem_ipsum"), ("javascript", "javascript")):
            if phrase in lowered:
                return reason
        if "{" in line:
            return REMOVED + "curly_bracket"
        return "policy" if any(phrase in lowered for phrase in POLICY) else None

    _cut(chain, "long_words", first, strip=True)
    chain.change(lambda text: CITATION.sub("", text))
    _cut(chain, "c4", second)
    chain.drop("sentences", lambda text: "sentences" if len(_sentences(text)) < 5 else None)


def _sentences(text: str) -> list[str]:
    return put_sentences_on_lines(" ".join(text.split())).split("\n") if text.split() else []


def _english(chain: Chain, language: Language, least: float, characters: int | None = None) -> None:
    def reason_of(text: str) -> str | None:
        label, probability = language(text[:characters].replace("\n", " "))
        if label != "en":
            return "language"
        return "language_probability" if probability < least else None

    chain.drop("language", reason_of)


def _filter(chain: Chain, stage: str, *sets: Callable[[str], Verdict]) -> None:
    chain.drop(stage, lambda text: next((found[0] for found in (rule(text) for rule in sets) if found), None))


def _emptied(chain: Chain) -> None:
    chain.drop("emptied", lambda text: None if text.split() else "words")


def _folded(text: str) -> str:
    return compared(text, "folded")


def c4(texts: Sequence[str], language: Language) -> Outcome:
    chain = Chain(texts)
    _c4_lines(chain, marks=True)
    chain.change_all(lambda texts: line_dedup(texts, unit="sentence", window=3)[0])
    _emptied(chain)
    _english(chain, language, 0, 1000)
    return chain.outcome()


def fineweb(texts: Sequence[str], language: Language) -> Outcome:
    chain = Chain(texts)
    _english(chain, language, 0.65)
    _filter(chain, "gopher", rules.gopher_repetition, rules.gopher_quality)
    _c4_lines(chain, marks=False)
    _filter(chain, "fineweb", rules.fineweb)
    drop_near_duplicates(chain, "fuzzy_dedup", 5, 0.75, _folded)
    for kind in ("EMAIL", "IP_ADDRESS"):
        chain.change(lambda text, kind=kind: redaction.redact_type(text, kind, f"[REDACTED]_{kind}", context=False)[0])
    return chain.outcome()


def _web_line(counters: str, keeps_blank: bool) -> CutLine:
    def reason_of(line: str) -> str | None:
        size = max(len(line), 1)
        if sum(map(str.isupper, line)) / size > 0.5:
            return "upper_case"
        if sum(map(str.isdecimal, line)) / size > 0.999999:
            return "digits"
        if re.fullmatch(rf"\W*[0-9][,.0-9]*[kmb]?\s+({counters})\W*", line.lower(), re.ASCII):
            return "counter"
        words = len(line.split())
        return "one_word" if words == 1 or (words == 0 and line and not keeps_blank) else None

    return reason_of


def _menus(text: str, any_end: bool) -> str:
    """Phrases of menus in lines of at most ten words; a line of nothing else is deleted."""
    kept = []
    lines = text.split("\n")
    for number, line in enumerate(lines):
        bare = line.strip().lower()
        more = bare[:9] == "read more" and len(bare) == 12 if any_end else bare == "read more..."
        if (bare in ("sign-in", "items in cart") or more) and number + 1 < len(lines):
            continue
        if len(line.split()) <= 10:
            if line.lower().startswith("sign-in"):
                line = line[7:].removeprefix(" ")
            end = line[-12:].lower()
            if end[:9] == "read more" and (any_end or end == "read more..."):
                line = line[:-12].removesuffix(" ")
            place = line.lower().find("items in cart")
            line = line if place < 0 else line[:place].removesuffix(" ") + line[place + 13 :]
        kept.append(line)
    return "\n".join(kept)


def refinedweb(texts: Sequence[str], language: Language) -> Outcome:
    chain = Chain(texts)
    _english(chain, language, 0.65)
    _filter(chain, "gopher", rules.gopher_repetition, rules.gopher_quality)
    _cut(chain, "lines", _web_line("likes|shares|comments|retweets|views|followers", keeps_blank=True), most=0.05)
    chain.change(lambda text: _menus(text, any_end=False))
    drop_near_duplicates(chain, "fuzzy_dedup", 5, 0.75, _folded)
    return chain.outcome()


NUMBER = r"[0-2]?[0-9]{1,2}"
ADDRESS = rf"\s{{0,10}}\b(?:(?:https?|ftp)://)?(?:{NUMBER}\.){{3}}{NUMBER}[-a-zA-Z0-9()@:%_+.~#?&/=]*"
COUNTERS = "likes|shares|comments|retweets|reposts|quotes|bookmarks|upvotes|downvotes|downloads|views|followers"


def dclm_baseline(texts: Sequence[str], language: Language) -> Outcome:
    chain = Chain(texts)
    chain.change(lambda text: re.sub(r"\n\n\n+", "\n\n", re.sub(ADDRESS, "", text, flags=re.ASCII)))
    _english(chain, language, 0.65)
    _filter(chain, "dclm_baseline", rules.dclm_baseline)
    _cut(chain, "lines", _web_line(COUNTERS, keeps_blank=False), most=0.05)
    chain.change(lambda text: _menus(text, any_end=True))
    return chain.outcome()


BYTE = r"(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)"
DOLMA_DATA = {
    "EMAIL_ADDRESS": r"[.\s@,?!;:)(]*[^\s@]+@[^\s@,?!;:)(]*\.[^\s@,?!;:)(]+?[.\s@,?!;:)(]?\s",
    "PHONE_NUMBER": r"\s+\(?[0-9]{3}\)?[-. ]*[0-9]{3}[-. ]?[0-9]{4}",
    "IP_ADDRESS": rf"(?:{BYTE}\.){{3}}{BYTE}",
}


def dolma(texts: Sequence[str], language: Language) -> Outcome:
    def personal(text: str) -> Verdict:
        found = sum(len(re.findall(pattern, text, re.ASCII)) for pattern in DOLMA_DATA.values())
        return ("too_much_personal_data", found) if found > 5 else None

    chain = Chain(texts)
    _english(chain, language, 0.5)
    _cut(chain, "lines", lambda line: None if line.rstrip().endswith((".", "?", "!", '"')) else "no_terminal_mark")
    _filter(chain, "dolma", rules.dolma, personal)
    chain.drop("exact_dedup", first_of(lambda text: text))
    chain.change_all(lambda texts: line_dedup(texts)[0])
    _emptied(chain)
    for name, pattern in DOLMA_DATA.items():
        chain.change(lambda text, n=name, p=pattern: re.sub(p, f" |||{n}||| ", text, flags=re.ASCII))
    return chain.outcome()


def dolma3(texts: Sequence[str]) -> Outcome:
    chain = Chain(texts)
    chain.drop("exact_dedup", first_of(lambda text: text))
    drop_near_duplicates(chain, "fuzzy_dedup", 5, 0.8, str.lower)
    chain.change_all(lambda texts: [text or "" for text in substring_dedup(texts, 500, join=50)])
    return chain.outcome()


CURATOR_POLICY = (*POLICY, "privacy overview", "privacy & cookies policy", "privacy and cookies policy")


def curator_english(texts: Sequence[str]) -> Outcome:
    def boilerplate(text: str) -> str | None:
        paragraphs = [paragraph.lower() for paragraph in rules.paragraphs_of(text)]
        if any("lorem ipsum" in paragraph for paragraph in paragraphs):
            return "lorem_ipsum"
        found = sum(any(phrase in paragraph for phrase in CURATOR_POLICY) for paragraph in paragraphs)
        return "too_much_removed" if found > 0.4 * max(len(paragraphs), 1) else None

    chain = Chain(texts)
    _filter(chain, "curator_english", rules.curator_english)
    chain.drop("boilerplate", boilerplate)
    return chain.outcome()


LINK = (
    r"(?i)\b(?:[a-z][\w-]+:(?:/{1,3}|[a-z0-9%])|www[0-9]{0,3}[.]|[a-z0-9.\-]+[.][a-z]{2,4}/)"
    r"(?:[^\s()<>]+|\(([^\s()<>]+|(\([^\s()<>]+\)))*\))+"
    r"(?:\(([^\s()<>]+|(\([^\s()<>]+\)))*\)|[^\s`!()\[\]{};:'\".,<>?«»“”‘’])"
)
PUNCTUATION = dict(
    zip(
        "，。、„”“‟«»１」「《》´ʼ‘’‚‛∶：？！（）；–━►～〈〉【】％",
        ",.," + '"' * 11 + "'" * 6 + "::?!();---~<>[]%",
        strict=True,
    )
) | {"—": " - ", "．": ". ", "…": "..."}
SPACES = {*"\t\x84\xa0\u202f\u205f\u2060\u3000\ufffc", *map(chr, range(0x2000, 0x200E))}


def datajuicer_redpajama(texts: Sequence[str], language: Language) -> Outcome:
    def sure(text: str) -> Verdict:
        probability = language(text.replace("\n", " "))[1]
        return ("language_probability", probability) if probability < 0.6 else None

    chain = Chain(texts)
    chain.change(lambda text: re.sub(r"[A-Za-z0-9.\-+_]+@[a-z0-9.\-+_]+\.[a-z]+", "", text))
    chain.change(lambda text: re.sub(LINK, "", text, flags=re.ASCII))
    chain.change(lambda text: unicodedata2.normalize("NFC", text))
    chain.change(lambda text: "".join(PUNCTUATION.get(char, char) for char in text))
    chain.change(lambda text: "".join(" " if char in SPACES else char for char in text.strip()))
    _filter(chain, "datajuicer_redpajama", rules.datajuicer_redpajama, sure)
    drop_near_duplicates(chain, "fuzzy_dedup", 6, 0.8, _folded)
    return chain.outcome()
