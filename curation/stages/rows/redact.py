# SPDX-License-Identifier: Apache-2.0
"""`redact`: replace personal data in the text of documents; it removes no document."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.contract import TEXT, Engine, Frame
from curation.base.errors import counted, nearest
from curation.stages.base import PATH, Function, RowStage
from curation.stages.outcome import Outcome, StageCount
from curation.stages.rows.named_entities import check_entities, check_model, facts, find_entities, model_files
from curation.stages.rows.personal_data import FINDERS, SHAPES, Finder
from curation.stages.rows.private_addresses import is_private
from curation.stages.rows.published_patterns import PUBLISHED, PublishedEmail, PublishedPattern
from curation.stages.rows.secret_keys import SECRETS

AnyFinder = Finder | PublishedPattern | PublishedEmail

PATTERNS: dict[str, Mapping[str, AnyFinder]] = {"checked": FINDERS, "shape": SHAPES, "published": PUBLISHED}
SECRET, ADDRESS = "secret", "ip_address"  # the type for all secrets; the type that `private` applies to
TYPES = (*FINDERS, SECRET, *SECRETS)
MAX_REPLACEMENT = 100  # characters, which bounds how much texts grow
CHOICES = {"patterns": tuple(PATTERNS), "types": TYPES, "private": ("replace", "keep")}

# Signs mark replacements while other types are searched: texts on both sides of a deleted match must not join, and
# names are replaced only outside of replacements. Signs are lone surrogates, which no UTF-8 text has.
SIGNS = {name: chr(0xD800 + place) for place, name in enumerate(TYPES)}
SIGN = re.compile(f"[{''.join(SIGNS.values())}]")


class Redact(RowStage, frozen=True, kw_only=True, tag="redact"):
    """Replace personal data by `[REDACTED]_<TYPE>`, with the types EMAIL, IP_ADDRESS, CREDIT_CARD, SSN and PHONE; and
    secrets, if `types` lists them.

    patterns     `checked`: the patterns below, with checks of digits, ranges and the text around addresses; `shape`:
                 without what is around addresses; `published`: the five plain patterns of the `nemo` reference
                 pipeline, which match more (docs/personal_data.md)
    types        types to replace; default: those of personal data. `secret` are the keys and tokens of all services,
                 and a name such as `github_token` those of one. Secrets are replaced first, the others in the order
                 below
    private      `keep`, the default, leaves IP addresses of no host on the Internet: private, loopback, link-local,
                 unspecified, documentation and other special-purpose addresses of IANA's registries; `replace`
                 replaces them too
    replacement  replacement text of at most 100 characters; `{type}` in it becomes the type in upper case; "" deletes
                 matches
    entities     names to replace too: `person`, `location`, `organisation`; default: none
    model        folder of a spaCy model that finds `entities`; it is never downloaded

    email        RFC 5321 address of ASCII letters, digits and `._%+-`, from a letter or digit on, or from `_` if it has
                 neither before the `@`, with a domain that ends in a top-level domain or is an IP address in brackets;
                 names in programs such as `this@A.b()` are skipped
    ip_address   IPv4 (0-255, no leading zeros) and IPv6 of the ranges in use; numbers of sections, versions and objects
                 are skipped
    credit_card  14 to 19 digits of a known issuer with a valid check digit (ISO/IEC 7812-1), in one piece or in printed
                 groups
    ssn          US social security number, AAA-GG-SSSS, in the ranges that the SSA issues
    phone        North American number (212-555-0123, (212) 555-0123, ...) or `+` and a country code of ITU-T E.164

    Patterns prefer precision to recall; docs/personal_data.md lists misses and false matches. Text around a match is
    unchanged. Names and places are searched only with `entities`, on the host, after the patterns. `details` counts
    replacements by type. Nulls stay nulls.
    """

    removes: ClassVar[bool] = False
    # 2: addresses of underscores and only marks; 3: IP addresses as domains; 4: addresses in context, `private: keep`
    revision: ClassVar[int] = 4
    function: ClassVar[Function] = Function(
        """Return the frame with personal data in its text replaced.

            >>> frame = pandas.DataFrame({"text": ["write to a@b.example"]})
            >>> curation.redact(frame, types="email")["text"].tolist()
            ['write to [REDACTED]_EMAIL']
        """,
        types={"model": PATH},
    )

    patterns: str = "checked"
    types: tuple[str, ...] = tuple(FINDERS)
    replacement: str = "[REDACTED]_{type}"
    entities: tuple[str, ...] = ()
    model: str = ""
    private: str = "keep"

    def __post_init__(self) -> None:
        if not self.types and not self.entities:
            raise ValueError(f"types is empty; list one or more of {', '.join(TYPES)}")
        for option in ("patterns", "private"):
            if getattr(self, option) not in CHOICES[option]:
                allowed = ", ".join(CHOICES[option])
                raise ValueError(f"{option} must be one of {allowed}, not {getattr(self, option)!r}")
        for name in self.types:
            if name not in TYPES:
                raise ValueError(f"types: no type {name!r} of personal data or secrets{nearest(name, TYPES)}")
        if self.private == "replace" and ADDRESS not in self.types:
            raise ValueError(f"private: replace is about IP addresses; add {ADDRESS} to types, or leave private out")
        check_entities(self.entities, self.model)
        if len(self.replacement) > MAX_REPLACEMENT:
            raise ValueError(
                f"replacement has {len(self.replacement):,} characters, expected at most {MAX_REPLACEMENT}: each match "
                "becomes this long. Shorten it"
            )
        if re.search(r"[0-9@:]", self.replacement):
            raise ValueError(
                "replacement must be text without digits, '@' and ':', which a later type could match, "
                f"not {self.replacement!r}"
            )

    def files(self) -> dict[str, str]:
        return model_files(self.model) if self.entities else {}

    def computed_with(self) -> dict[str, str]:
        unicode = {"unicode": unicodedata.unidata_version} if self.patterns == "published" else {}
        return unicode | (facts(self.model) if self.entities else {})

    def check(self, inputs: Sequence[str]) -> None:
        if self.entities:
            check_model(self.model, self.entities)

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        texts = engine.to_arrow(frame[[TEXT]]).column(TEXT)
        redacted, found = self._redacted(texts)
        counts = {name: sum(rows.values()) for name, rows in found.items()}
        if not redacted:
            return Outcome(details=counts)
        edited = np.zeros(len(texts), bool)
        edited[list(redacted)] = True
        new = pa.array([redacted[row] for row in sorted(redacted)], texts.type)
        text = pc.replace_with_mask(texts, pa.array(edited), new)
        return Outcome(text=text, edited=edited, details=counts)

    def explain(self) -> list[str]:
        order = list(dict.fromkeys(name for name, _ in self._finders()))
        marks = {name: self._mark(name) or "nothing" for name in (*order, *self.entities)}
        found = [f"{name} -> {marks[name]}" for name in order]
        return found + [f"{name} -> {marks[name]}, by {self.model}" for name in self.entities]

    def report_lines(self, count: StageCount) -> list[str]:
        counts = ", ".join(f"{name} {number:,}" for name, number in count.details.items())
        return [f"{counts or 'nothing'} in {counted(count.edited, 'document')}"]

    def count(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        """Return how many matches of each type the stage would replace in each row, int64."""
        _, found = self._redacted(engine.to_arrow(frame[[TEXT]]).column(TEXT))
        counts = {name: np.zeros(len(frame), np.int64) for name in found}
        for name, rows in found.items():
            counts[name][list(rows)] = list(rows.values())
        return counts

    def _finders(self) -> list[tuple[str, AnyFinder]]:
        """Return the searches in their order, each with the type of what it finds."""
        finders: list[tuple[str, AnyFinder]] = []
        for name, finder in {**SECRETS, **PATTERNS[self.patterns]}.items():
            kind = SECRET if name in SECRETS and name not in self.types else name
            if self.private == "keep" and name == ADDRESS and isinstance(finder, Finder | PublishedPattern):
                finder = _without_private(finder)
            finders += [(kind, finder)] if kind in self.types else []
        return finders

    def _redacted(self, texts: pa.ChunkedArray) -> tuple[dict[int, str], dict[str, dict[int, int]]]:
        """Return the changed texts by row, and for each type the number of replacements by row."""
        finders = self._finders()
        hint = "|".join(finder.hint for _, finder in finders)
        rows = _matching(texts, hint) if finders else np.zeros(0, np.int64)
        candidates = texts.take(pa.array(rows))
        redacted: dict[int, str] = {}
        counts: dict[str, dict[int, int]] = {name: {} for name, _ in finders}
        for name, finder in finders:
            for number in _matching(candidates, finder.hint).tolist():
                row = int(rows[number])
                before = redacted[row] if row in redacted else candidates[number].as_py()
                text, count = finder.replace(before, self._signed(name))
                if count:
                    redacted[row] = text
                    counts[name][row] = counts[name].get(row, 0) + count
        if self.entities:
            self._redact_entities(texts, redacted, counts)
        elif not self.replacement:
            redacted = {row: SIGN.sub("", text) for row, text in redacted.items()}
        return redacted, counts

    def _mark(self, name: str) -> str:
        return self.replacement.replace("{type}", name.upper())

    def _signed(self, name: str) -> str:
        """Return the replacement of a type during the search. If entities are searched later, the replacement has a
        sign after its first character. The first and last character stay, because patterns look at them."""
        mark = self._mark(name)
        return mark[:1] + SIGNS[name] + mark[1:] if self.entities or not mark else mark

    def _without_signs(self, text: str) -> tuple[str, list[tuple[int, int]]]:
        """Return a text without signs, and the spans of the replacements in it."""
        spans = []
        for count, match in enumerate(SIGN.finditer(text)):
            mark = self._mark(next(name for name, sign in SIGNS.items() if sign == match[0]))
            start = match.start() - count - 1
            spans += [(start, start + len(mark))] if mark else []
        return SIGN.sub("", text), spans

    def _redact_entities(
        self, texts: pa.ChunkedArray, redacted: dict[int, str], counts: dict[str, dict[int, int]]
    ) -> None:
        """Replace names in the texts after the patterns, outside of the patterns' replacements."""
        counts |= {name: {} for name in self.entities}
        for row, original in enumerate(texts.to_pylist()):
            text, taken = self._without_signs(redacted[row]) if row in redacted else (original, [])
            pieces, done = [], 0
            for low, high, name in find_entities(text, self.model, self.entities) if text else ():
                if not any(low < stop and start < high for start, stop in taken):
                    pieces += [text[done:low], self._mark(name)]
                    done = high
                    counts[name][row] = counts[name].get(row, 0) + 1
            if pieces or row in redacted:
                redacted[row] = "".join([*pieces, text[done:]])


def _matching(texts: pa.ChunkedArray, hint: str) -> np.ndarray:
    """Return the rows in which RE2 finds the pattern, ascending, without nulls."""
    return np.flatnonzero(pc.fill_null(pc.match_substring_regex(texts, hint), False).to_numpy())


def _without_private(finder: Finder | PublishedPattern) -> Finder | PublishedPattern:
    """Return the search for addresses, without those that belong to no host on the Internet."""
    return finder._replace(check=lambda match: finder.check(match) and not is_private(match[0]))
