# SPDX-License-Identifier: Apache-2.0
"""Text that crosses between host and device more often than recorded is noticed, with the call site."""

import json

import pytest

from curation.base.speeds import MORE_TRANSFERS, TRANSFERS
from tests.ptx import traffic
from tests.ptx.traffic import DOWN, MAP, OTHERS, UP, changes, totals

RECORDED = json.loads(traffic.RECORDED.read_bytes())


@pytest.mark.slow("in a run of the recipe default, no text crosses more often than recorded")  # 20 CPU seconds each
@pytest.mark.parametrize("corpus", traffic.CORPORA)
def test_bytes_are_the_recorded_ones(corpus: str):
    found = changes(traffic.figures_of(corpus), RECORDED[corpus])
    assert not found, f"{corpus}: {'; '.join(found)}; if that is intended, record it with `make ptx-record`"


def test_more_bytes_are_noticed():
    site, other = f"{DOWN} a.py:f -> b.py:g", f"{UP} a.py:f -> b.py:g"
    recorded = {MAP: {site: 0.5}, OTHERS: {}}
    assert changes({MAP: {site: 0.505}, OTHERS: {}}, recorded) == []
    assert changes({MAP: {site: 1.5}, OTHERS: {other: 0.25}}, recorded) == [
        f"map phase: {site} grew from 0.50 to 1.50 bytes per byte of text",
        f"other phases: {other} grew from 0.00 to 0.25 bytes per byte of text",
    ]
    assert changes({MAP: {}, OTHERS: {}}, recorded) == [
        f"map phase: {site} fell from 0.50 to 0.00 bytes per byte of text"
    ]


@pytest.mark.parametrize("corpus", traffic.CORPORA)
def test_call_sites_add_up(corpus: str):
    figures = RECORDED[corpus]
    whole, own, others = totals(figures), totals(figures, (MAP,)), totals(figures, (OTHERS,))
    assert whole == pytest.approx({name: own[name] + others[name] for name in whole}, abs=0.011)
    assert own[UP] > 1  # the file


def test_the_model_of_a_run_has_the_recorded_bytes():
    for figures in RECORDED.values():
        moved = sum(totals(figures).values())
        assert moved == pytest.approx(TRANSFERS + MORE_TRANSFERS["fuzzy_dedup"], abs=0.1)
