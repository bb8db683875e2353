# SPDX-License-Identifier: Apache-2.0
"""`tokens/_meta/` of a finished run whose folder has moved: its files name absolute paths, as Megatron wants them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from curation.errors import OutputError
from curation.files import file_sha256, read_json
from curation.packing.blends import META, Blend, Megatron, meta_files, write_meta
from curation.packing.megatron import PairInfo, TrainingPair
from curation.running import report

MANIFEST, NEMO = f"{META}/manifest.json", f"{META}/nemo.yaml"


def meta_of_today(folder: Path, content: dict[str, Any]) -> dict[str, bytes]:
    """The files of `tokens/_meta/` as they have to be where the run of that `report.json` stands now, an absolute path;
    none where they are so, or where it has no pairs. OutputError where it has moved and the manifest is not the run's.
    """
    expected = content["outputs"].get(NEMO, "")
    if not expected:
        return {}
    if file_sha256(folder / MANIFEST) != content["outputs"][MANIFEST]:
        if f" {folder}/tokens/".encode() in (folder / NEMO).read_bytes():
            return {}  # it has not moved: what has changed in it is for `verify` to tell
        raise OutputError(
            f"{folder} has moved, and {MANIFEST}, which its new paths are made from, has changed. Put the file back, "
            "or give --force"
        )
    manifest = read_json(folder / MANIFEST)
    output = content["recipe"]["output"]
    files = meta_files(
        folder,
        manifest,
        [_pair(folder, **entry) for entry in manifest["pairs"]],
        {source["name"]: source["blend_weight"] for source in content["sources"]},
        (msgspec.convert(output["blend"], Blend), msgspec.convert(output["megatron"], Megatron)),
    )
    return {} if hashlib.sha256(files["nemo.yaml"]).hexdigest() == expected else files


def _pair(folder: Path, source: str, prefix: str, split: str = "", **counts: Any) -> TrainingPair:
    return TrainingPair(source, split, PairInfo(prefix=str(folder / "tokens" / prefix), **counts))


def mend(folder: Path, content: dict[str, Any]) -> bool:
    """Writes `tokens/_meta/` of a moved run anew, then the report with its digests; says whether there was a need. What
    is killed in between is done again by the next call. Raises as `meta_of_today`."""
    files = meta_of_today(folder, content)
    if not files:
        return False
    content["outputs"] |= write_meta(folder, files)
    report.write(folder, content)
    return True
