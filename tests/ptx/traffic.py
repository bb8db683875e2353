# SPDX-License-Identifier: Apache-2.0
"""Bytes between host and device in a run of the recipe `default`, by call site and per byte of text.

    python -m tests.ptx.traffic [--record]

Runs the recipe over the real texts of tests/data in one batch, on the stand-ins and the executor of PTX, and prints
each call site. `--record` writes the figures to `traffic.json`, with which a test compares later ones. A call site is
the function of `curation` that called the engine, and the function of `gpu_pipeline` that copied. Tables that a process
copies once are not counted, and neither are single numbers and masks that NumPy's stand-in copies unseen.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from curation.base import engine as selector
from curation.recipes.recipe import load_recipe
from curation.running.run import run
from tests.corpus import PROJECT, real_documents
from tests.gpu import stand_ins
from tests.ptx.engine import install_engine
from tests.runs import records_of

RECORDED = Path(__file__).with_name("traffic.json")
CORPORA = {"English": "en", "22 languages": ""}  # name -> language of `real_documents`
MAP, OTHERS = "map phase", "other phases"
DOWN, UP = "down", "up"
ONCE = (  # what a process copies once
    "gpu_pipeline/memory/device.py:shared.<locals>.decorate.<locals>.get",
    "curation/reading/blank.py:_hashes_of_starts",
)
MIN_CHANGE = 0.01  # bytes per byte of text

Figures = dict[str, dict[str, float]]  # phase -> "down <- call site" -> bytes per byte of text


class Traffic:
    """The bytes that crossed, by phase and call site."""

    def __init__(self) -> None:
        self.bytes: dict[str, Counter[str]] = {MAP: Counter(), OTHERS: Counter()}

    def add(self, direction: str, size: int) -> None:
        phase, own, outer = OTHERS, "", ""
        frame: Any = sys._getframe(1)
        while frame is not None:
            path, name = frame.f_code.co_filename.removeprefix(f"{PROJECT}/"), frame.f_code.co_qualname
            if f"{path}:{name}" in ONCE:
                return
            if path.startswith("gpu_pipeline/") and not own and path != "gpu_pipeline/memory/buffers.py":
                own = f"{path}:{name.partition('.')[0]}"
            if path.startswith("curation/") and not outer and own:
                outer = f"{path}:{name}"
            if path == "curation/running/phases/map_phase.py":
                phase = MAP
            frame = frame.f_back
        self.bytes[phase][f"{direction} {outer} -> {own}"] += size


def count_copies(monkeypatch: pytest.MonkeyPatch) -> Traffic:
    """Let the stand-ins count what they copy; before `install_engine`."""
    traffic, whole = Traffic(), stand_ins.numpy_as_cupy

    def counted(direction: str, function: Callable) -> Callable:
        def copy(array: Any, *arguments: Any, **settings: Any) -> Any:
            traffic.add(direction, getattr(array, "nbytes", 0))
            return function(array, *arguments, **settings)

        return copy

    def numpy_as_cupy() -> Any:
        cupy = whole()
        cupy.asnumpy, cupy.asarray = counted(DOWN, cupy.asnumpy), counted(UP, cupy.asarray)
        return cupy

    def to_arrow(frame: stand_ins.DataFrame, preserve_index: bool) -> Any:
        table = frame_to_arrow(frame, preserve_index)
        traffic.add(DOWN, table.nbytes)
        return table

    def copied_up(*parts: Any) -> Any:
        traffic.add(UP, sum(part.nbytes for part in parts))
        return join_parts(*parts)

    frame_to_arrow, join_parts = stand_ins.DataFrame.to_arrow, stand_ins.copied_up
    monkeypatch.setattr(stand_ins, "numpy_as_cupy", numpy_as_cupy)
    monkeypatch.setattr(stand_ins, "copied_up", copied_up)
    monkeypatch.setattr(stand_ins, "copied_down", counted(DOWN, stand_ins.copied_down))
    monkeypatch.setattr(stand_ins.DataFrame, "to_arrow", to_arrow)
    for kind in (stand_ins.DataFrame, stand_ins.Series):
        monkeypatch.setattr(kind, "from_arrow", counted(UP, kind.from_arrow))
    return traffic


def figures_of(corpus: str) -> Figures:
    """Return the bytes of each call site in a run over a corpus, per byte of text; sites with less than a thousandth
    are left out."""
    texts = real_documents(language=CORPORA[corpus])
    size = sum(len(text.encode()) for text in texts)
    with pytest.MonkeyPatch.context() as monkeypatch, tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(selector, "gpu_obstacle", lambda: "")
        traffic = count_copies(monkeypatch)
        install_engine(monkeypatch, 1)
        monkeypatch.setattr(sys.modules["gpu_pipeline.json_lines"], "MIN_BYTES", 0)
        path = Path(folder, "texts.jsonl")
        path.write_bytes(records_of(texts))
        run(
            load_recipe("default", input=str(path)),
            Path(folder, "out"),
            engine="gpu",
            workers=1,
            scheduler="threads",
            progress=False,
        )
    return {
        phase: {site: share for site, count in sorted(sites.items()) if (share := round(count / size, 3))}
        for phase, sites in traffic.bytes.items()
    }


def totals(figures: Figures, phases: tuple[str, ...] = (MAP, OTHERS)) -> dict[str, float]:
    """Return the sums of the call sites in these phases: direction -> bytes per byte of text."""
    sites = [site for phase in phases for site in figures[phase].items()]
    return {
        direction: round(sum(share for site, share in sites if site.startswith(f"{direction} ")), 2)
        for direction in (DOWN, UP)
    }


def changes(found: Figures, recorded: Figures) -> list[str]:
    """Return a line for each call site whose bytes differ from the recorded ones."""
    lines = []
    for phase in found:
        for site in sorted({*found[phase], *recorded[phase]}):
            before, now = recorded[phase].get(site, 0.0), found[phase].get(site, 0.0)
            if abs(now - before) > MIN_CHANGE:
                verb = "grew" if now > before else "fell"
                lines.append(f"{phase}: {site} {verb} from {before:.2f} to {now:.2f} bytes per byte of text")
    return lines


def report(corpus: str, figures: Figures) -> str:
    lines = [f"{corpus}: whole run {totals(figures)}, {MAP} {totals(figures, (MAP,))}"]
    for phase, sites in figures.items():
        lines += [f"{share:8.3f} {phase}: {site}" for site, share in sorted(sites.items(), key=lambda each: -each[1])]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help=f"write {RECORDED.name}")
    found = {corpus: figures_of(corpus) for corpus in CORPORA}
    print("\n\n".join(report(*each) for each in found.items()))
    if parser.parse_args().record:
        RECORDED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
