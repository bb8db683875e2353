# SPDX-License-Identifier: Apache-2.0
"""Few members for the authors of stages and formats: public methods, properties and class variables of the base
classes, with those that they inherit."""

import inspect
from pathlib import Path
from typing import Any

import msgspec
import pytest

from curation.reading.formats.base import ColumnFormat, Format
from curation.stages.base import CorpusStage, RowStage, Stage

DOCS = Path(__file__).parents[2] / "docs"
MOST = {RowStage: 20, CorpusStage: 28, Format: 26, ColumnFormat: 26}


def members_of(base: type[Any]) -> set[str]:
    """The public names of a class, also of variables without a value; not those of `msgspec.Struct`, nor settings."""
    announced = {name for parent in base.__mro__ for name in inspect.get_annotations(parent)}
    settings = {*getattr(base, "__struct_fields__", ())}
    names = {*dir(base), *announced} - {*dir(msgspec.Struct)} - settings
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("base", MOST)
def test_base_classes_have_few_members(base: type[Any]):
    assert len(members_of(base)) <= MOST[base], sorted(members_of(base))


def test_the_count_sees_each_kind_of_member():
    class Mine(Stage, frozen=True, kw_only=True):
        setting: int = 1

        @property
        def shown(self) -> int:
            return 1

        def method(self) -> None: ...

    class Text(Format):
        announced: str
        given = 1

    assert members_of(Mine) - members_of(Stage) == {"shown", "method"}
    assert members_of(Text) - members_of(Format) == {"announced", "given"}


@pytest.mark.parametrize("base", [RowStage, CorpusStage])
def test_the_page_names_each_member(base: type[Any]):
    page = "".join((DOCS / name).read_text("utf-8") for name in ("extending.md", "corpus_stages.md"))
    assert [name for name in sorted(members_of(base)) if f"`{name}" not in page] == []
