# SPDX-License-Identifier: Apache-2.0
"""`tokens/_meta/` of a finished run whose folder has moved: its files name absolute paths, as Megatron wants them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from curation.errors import IntegrityError, OutputError
from curation.files import file_sha256, read_json
from curation.packing.blends import META, Blend, Megatron, meta_files, write_meta
from curation.packing.megatron import PairInfo, TrainingPair
from curation.packing.ordering import split_names
from curation.running import report

MANIFEST, NEMO = f"{META}/manifest.json", f"{META}/nemo.yaml"


class _Pair(PairInfo, frozen=True, kw_only=True):
    """An entry of `manifest.json`."""

    source: str
    split: str = ""


class _Manifest(msgspec.Struct):
    pairs: list[_Pair]


def meta_of_today(folder: Path, content: dict[str, Any]) -> dict[str, bytes]:
    """The files of `tokens/_meta/` as they have to be where the run of that `report.json` stands now, an absolute path;
    none where they are so, or where it has no pairs. OutputError where it has moved and the manifest is not the run's,
    IntegrityError where the two contradict each other."""
    expected = content["outputs"].get(NEMO, "")
    if not expected:
        return {}
    if file_sha256(folder / MANIFEST) != content["outputs"].get(MANIFEST):
        if f" {folder}/tokens/".encode() in (folder / NEMO).read_bytes():
            return {}  # it has not moved: what has changed in it is for `verify` to tell
        raise OutputError(
            f"{folder} has moved, and {MANIFEST}, which its new paths are made from, has changed. Put the file back, "
            "or give --force"
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
    strange = [pair for pair in pairs if pair.source not in names or pair.tokens < 1]
    if strange or (pairs and {pair.split for pair in pairs} != {*splits}):
        raise IntegrityError(
            f"{MANIFEST} has pairs without tokens, or of inputs or splits that report.json does not have"
        )
    return [
        TrainingPair(
            pair.source, pair.split, msgspec.structs.replace(pair, prefix=str(folder / "tokens" / pair.prefix))
        )
        for pair in pairs
    ]


def mend(folder: Path, content: dict[str, Any]) -> bool:
    """Writes `tokens/_meta/` of a moved run anew, then the report with its digests; says whether there was a need. What
    is killed in between is done again by the next call. Raises as `meta_of_today`."""
    files = meta_of_today(folder, content)
    if not files:
        return False
    content["outputs"] |= write_meta(folder, files)
    report.write(folder, content)
    return True
