# SPDX-License-Identifier: Apache-2.0
"""The settings by which an input finds the main text of its web pages."""

from __future__ import annotations

import msgspec

from curation.base.errors import nearest

RESILIPARSE, TRAFILATURA, JUSTEXT = EXTRACTORS = ("resiliparse", "trafilatura", "justext")
KEEP, DROP = KEPT = ("keep", "drop")
NO_LANGUAGE = "none"
SHORT, LONG = 70, 200  # characters of a paragraph: the defaults of jusText for `length_low` and `length_high`
# Elements; <dl> does not count as a list, since manuals describe functions in it
TABLES, LISTS = ("table",), ("ul", "ol")


class Extract(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The library that finds the main text of a page, and what it leaves out.

    by               resiliparse, trafilatura or justext
    tables           keep, or drop: without tables, also those that lay out the page
    lists            keep, or drop: without bulleted and numbered lists
    language         of justext: the name of one of its stop lists, such as English, or none: for all languages
    min_characters   of justext: shorter paragraphs are never good by themselves (its `length_low`)
    """

    by: str = RESILIPARSE
    tables: str = KEEP
    lists: str = KEEP
    language: str = ""
    min_characters: int = SHORT

    def __post_init__(self) -> None:
        if self.by not in EXTRACTORS:
            raise ValueError(f"extract: no extractor {self.by!r}{nearest(self.by, EXTRACTORS)}")
        for name in ("tables", "lists"):
            if (value := getattr(self, name)) not in KEPT:
                raise ValueError(f"extract.{name} must be keep or drop, not {value!r}")
        if self.by == JUSTEXT and not self.language:
            raise ValueError(
                "extract: justext needs the language of the pages. Write extract: {by: justext, language: English}, "
                "or language: none for pages of several languages"
            )
        if not 0 <= self.min_characters <= LONG:
            raise ValueError(f"extract.min_characters must be from 0 to {LONG}, not {self.min_characters}")
        if self.by != JUSTEXT and self.min_characters != SHORT:
            raise ValueError(f"extract.min_characters is of justext, and {self.by} takes none. Leave it out")
        if self.by != JUSTEXT and self.language:
            raise ValueError(
                f"extract.language chooses the stop words of justext, and {self.by} takes none. Leave language out"
            )

    @property
    def dropped(self) -> tuple[str, ...]:
        """The elements that are left out with their content."""
        return (TABLES if self.tables == DROP else ()) + (LISTS if self.lists == DROP else ())
