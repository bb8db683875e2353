# SPDX-License-Identifier: Apache-2.0
"""Rewrites the paths in `tokens/_meta/` of a run whose folder has moved."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from curation.base.errors import IntegrityError, OutputError
from curation.base.system.files import file_sha256, read_json
from curation.results.report.report import write_report
from curation.tokens.blends import META, Blend, Megatron, meta_files, write_meta
from curation.tokens.megatron import PairInfo, TrainingPair
from curation.tokens.ordering import split_names

MANIFEST, NEMO = f"{META}/manifest.json", f"{META}/nemo.yaml"


class _Pair(PairInfo, frozen=True, kw_only=True):
    """An entry of `manifest.json`."""

    source: str
    split: str = ""


class _Manifest(msgspec.Struct):
    pairs: list[_Pair]


def relocated_meta(folder: Path, content: dict[str, Any]) -> dict[str, bytes]:
    """Return file name -> content of `tokens/_meta/` for a run that has moved to `folder`, an absolute path.

    The result is empty if the run has not moved or has no pairs. `content` is the run's `report.json`. Raises
    OutputError if the run has moved and its manifest has changed, and IntegrityError if the manifest contradicts the
    report.
    """
    expected = content["outputs"].get(NEMO, "")
    if not expected:
        return {}
    if file_sha256(folder / MANIFEST) != content["outputs"].get(MANIFEST):
        if f" {folder}/tokens/".encode() in (folder / NEMO).read_bytes():
            return {}  # the run has not moved; `verify` reports the change
        raise OutputError(
            f"{folder} has moved, and {MANIFEST}, the source of its new paths, has changed. Put the file back, or "
            "give --force"
        )
    manifest = read_json(folder / MANIFEST)
    output = content["recipe"]["output"]
    names = [source["name"] for source in content["sources"]]
    weights = {source["name"]: source["blend_weight"] for source in content["sources"] if "blend_weight" in source}
    files = meta_files(
        folder,
        manifest,
        _pairs(folder, manifest, names, split_names(output["splits"])),
        weights,
        (msgspec.convert(output["blend"], Blend), msgspec.convert(output["megatron"], Megatron)),
    )
    return {} if hashlib.sha256(files["nemo.yaml"]).hexdigest() == expected else files


def _pairs(folder: Path, manifest: Any, names: Sequence[str], splits: Sequence[str]) -> list[TrainingPair]:
    try:
        pairs = msgspec.convert(manifest, _Manifest).pairs
    except msgspec.ValidationError as error:
        raise IntegrityError(f"{MANIFEST} is not what a run writes: {error}") from None
    invalid = [pair for pair in pairs if pair.source not in names or pair.tokens < 1]
    if invalid or (pairs and {pair.split for pair in pairs} != {*splits}):
        raise IntegrityError(f"{MANIFEST} has pairs without tokens, or of inputs or splits that are not in report.json")
    return [
        TrainingPair(
            pair.source, pair.split, msgspec.structs.replace(pair, prefix=str(folder / "tokens" / pair.prefix))
        )
        for pair in pairs
    ]


def rewrite_moved_paths(folder: Path, content: dict[str, Any]) -> bool:
    """Rewrite `tokens/_meta/` of a moved run, then the report with its digests; return whether the run had moved.

    The next call repeats the work if this one is killed. Raises the errors of `relocated_meta`.
    """
    files = relocated_meta(folder, content)
    if not files:
        return False
    content["outputs"] |= write_meta(folder, files)
    write_report(folder, content)
    return True
