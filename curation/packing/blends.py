# SPDX-License-Identifier: Apache-2.0
"""How training draws from the pairs of a run: weights, and the files and lines that hand them to Megatron and NeMo.

`tokens/_meta/` has them: Megatron's merge tool and AutoModel's glob stop at any file beside the pairs that is none.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from curation.errors import OutputError
from curation.files import as_json, commit
from curation.packing.megatron import TrainingPair
from curation.packing.ordering import SPLITS

WAYS = ("given", "tokens", "temperature")
META = "tokens/_meta"
INDEX_FOLDER = "index_mapping"  # of a run; not in tokens/, where every file is one of the run


class Blend(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What share of the tokens that training draws comes from each input; its pairs share it by their tokens.

    by           `given`: the share is `blend_weight`, divided by the sum over all inputs; where no input has one, it is
                 that of the input's tokens. `tokens`: tokens x `blend_weight`; `temperature`: tokens^(1/temperature) x
                 `blend_weight`; these two take 1 where an input has none
    temperature  1 draws by size, more evens out small and large inputs; for `by: temperature` only
    """

    by: str = "given"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.by not in WAYS:
            raise ValueError(f"blend.by must be one of {', '.join(WAYS)}, not {self.by!r}")
        if not self.temperature > 0:
            raise ValueError(f"blend.temperature must be above 0, not {self.temperature}")
        if self.temperature != 1 and self.by != "temperature":
            raise ValueError("blend.temperature has a meaning with blend.by: temperature only")


class Megatron(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `nemo.yaml` and the lines to paste say; the pairs do not depend on it.

    seq_length     tokens of a training sample
    splits_string  Megatron's own split, by ranges of documents in file order; has no meaning with `output.splits`
    """

    seq_length: int = 4096
    splits_string: str = "98,1,1"

    def __post_init__(self) -> None:
        if self.seq_length < 1:
            raise ValueError(f"megatron.seq_length must be at least 1, not {self.seq_length}")
        try:
            shares = [float(share) for share in self.splits_string.split(",")]
        except ValueError:
            shares = []
        if len(shares) != 3 or not all(map(math.isfinite, shares)) or min(shares) < 0 or not shares[0]:
            raise ValueError(f"megatron.splits_string must be three numbers as in 98,1,1, not {self.splits_string!r}")


class Weighted(msgspec.Struct, frozen=True):
    """A pair and its weight, as all the files name them."""

    weight: str
    prefix: str


def check_folder(folder: Path) -> None:
    """OutputError for a path that Megatron would take apart; before a run, since the pairs will stand there."""
    if any(character.isspace() for character in str(folder)):
        raise OutputError(
            f"the path {str(folder)!r} has white space, at which Megatron splits blend.txt (--data-args-path). Give an "
            "--output without"
        )


def weigh(pairs: Sequence[TrainingPair], weights: Mapping[str, float], blend: Blend) -> list[Weighted]:
    """The pairs of one split with their weights, which Megatron divides by their sum and takes for shares of the
    samples. `weights`: the `blend_weight` of each input that has one."""
    sizes: dict[str, int] = {}
    for pair in pairs:
        sizes[pair.source] = sizes.get(pair.source, 0) + pair.info.tokens
    power = {"given": 0.0 if weights else 1.0, "tokens": 1.0, "temperature": 1 / blend.temperature}[blend.by]
    largest = max(sizes.values(), default=1)
    found = []
    for pair in pairs:
        size = sizes[pair.source]
        weight = (
            pair.info.tokens * weights.get(pair.source, 1.0) * (1.0 if power == 1 else (size / largest) ** power / size)
        )
        found.append(weight)
    scale = 1.0 if power == 1 else sum(found)
    return [Weighted(f"{weight / scale:.6g}", pair.info.prefix) for weight, pair in zip(found, pairs, strict=True)]


def flat(weighted: Sequence[Weighted]) -> list[str]:
    """Weight, prefix, weight, prefix: how Megatron and NeMo take a blend."""
    return [text for pair in weighted for text in (pair.weight, pair.prefix)]


def meta_files(
    folder: Path, manifest: dict[str, Any], pairs: Sequence[TrainingPair], weights: Mapping[str, float],
    settings: tuple[Blend, Megatron],
) -> dict[str, bytes]:  # fmt: skip
    """`tokens/_meta/` of a run in `folder`, an absolute path: `manifest.json`, `blend.txt` (of a run with splits: its
    train side), `nemo.yaml`, `README.txt` with the lines to paste, and for a run with splits `per_split.json`."""
    blend, megatron = settings
    names = [name for name in SPLITS if any(pair.split == name for pair in pairs)] or [""]
    by_split = {name: weigh([pair for pair in pairs if pair.split == name], weights, blend) for name in names}
    files = {"manifest.json": as_json(manifest, indent=True)}
    texts = {
        "blend.txt": "".join(f"{pair.weight} {pair.prefix}\n" for pair in by_split[names[0]]),
        "nemo.yaml": _nemo_yaml(folder, by_split, megatron),
        "README.txt": _readme(folder, by_split, pairs, megatron),
    }
    if names != [""]:
        content = {name: flat(by_split[name]) if name in by_split else None for name in SPLITS}
        files["per_split.json"] = as_json(content, indent=True)
    return files | {name: text.encode() for name, text in texts.items()}


def write_meta(folder: Path, files: Mapping[str, bytes]) -> dict[str, str]:
    """Writes what `meta_files` gives; gives path -> SHA-256."""
    for name, data in files.items():
        with commit(folder / META / name) as path:
            path.write_bytes(data)
    return {f"{META}/{name}": hashlib.sha256(data).hexdigest() for name, data in files.items()}


def _three_sides(by_split: Mapping[str, list[Weighted]]) -> dict[str, list[str]]:
    """NeMo wants all three; a side that the run does not have is the other held-out one."""
    held_out = {"validation": by_split.get("valid"), "test": by_split.get("test")}
    given = [side for side in held_out.values() if side]
    return {"train": flat(by_split["train"])} | {name: flat(side or given[0]) for name, side in held_out.items()}


def _nemo_yaml(folder: Path, by_split: Mapping[str, list[Weighted]], megatron: Megatron) -> str:
    import yaml

    prefix = _numbered(flat(by_split[""])) if "" in by_split else _each(_three_sides(by_split))
    data = {
        "data_impl": "mmap",
        "data_prefix": prefix,
        "index_mapping_dir": str(folder / INDEX_FOLDER),
        "splits_string": megatron.splits_string if "" in by_split else None,
        "seq_length": megatron.seq_length,
    }
    return yaml.safe_dump({"model": {"data": data}}, sort_keys=False, allow_unicode=True, width=10_000)


def _numbered(blend: list[str]) -> list[str | float]:
    return [text if number % 2 else float(text) for number, text in enumerate(blend)]


def _each(sides: Mapping[str, list[str]]) -> dict[str, list[str | float]]:
    return {side: _numbered(blend) for side, blend in sides.items()}


def _readme(
    folder: Path, by_split: Mapping[str, list[Weighted]], pairs: Sequence[TrainingPair], megatron: Megatron
) -> str:
    """The lines for each trainer; `inspect` of a pair shows its documents."""
    meta, cache, length = folder / META, folder / INDEX_FOLDER, megatron.seq_length
    if "" in by_split:
        core = f"--data-args-path {meta / 'blend.txt'} --split {megatron.splits_string}"
        bridge = f"blend={_tuple(by_split[''])}, split={megatron.splits_string!r}"
        nemo = f"paths={flat(by_split[''])!r}, split={megatron.splits_string!r}"
    else:
        core = f"--per-split-data-args-path {meta / 'per_split.json'}"
        sides = ", ".join(_tuple(by_split[name]) if name in by_split else "None" for name in SPLITS)
        bridge = f"blend_per_split=[{sides}]"
        nemo = f"paths={_three_sides(by_split)!r}"
    lines = [
        "Megatron-LM",
        f"  {core} --seq-length {length} --data-cache-path {cache}",
        "",
        "Megatron Bridge",
        f"  GPTDatasetConfig({bridge}, sequence_length={length}, path_to_cache={str(cache)!r}, ...)",
        "",
        "NeMo 2.0",
        f"  PreTrainingDataModule({nemo}, seq_length={length}, index_mapping_dir={str(cache)!r}, ...)",
        "",
        "NeMo 1",
        f"  the section model.data of {meta / 'nemo.yaml'}",
        "",
        *_warnings(pairs, by_split, megatron),
    ]
    return "\n".join(lines)


def _tuple(weighted: Sequence[Weighted]) -> str:
    weights = ", ".join(pair.weight for pair in weighted)
    return f"({[pair.prefix for pair in weighted]!r}, [{weights}])"


def _warnings(pairs: Sequence[TrainingPair], by_split: Mapping[str, list[Weighted]], megatron: Megatron) -> list[str]:
    if "" not in by_split:
        return []
    shares = [float(share) for share in megatron.splits_string.split(",")]
    poor = [pair for pair in pairs if not all(documents_per_side(pair.info.documents, shares))]
    return [
        f"{Path(pair.info.prefix).name} has {pair.info.documents} documents, too few for a split of "
        f"{megatron.splits_string}: a side without documents makes Megatron wait for ever. Use output.splits, or "
        "--split 1,0,0.\n"
        for pair in poor
    ]


def documents_per_side(documents: int, shares: Sequence[float]) -> list[int]:
    """How many documents Megatron's own split gives to each side that has a share. It rounds the ends of the ranges
    (`blended_megatron_dataset_builder.py`)."""
    ends = [round(sum(shares[: number + 1]) / sum(shares) * documents) for number in range(len(shares))]
    counts = [high - low for low, high in zip([0, *ends], ends, strict=False)]
    return [count for count, share in zip(counts, shares, strict=True) if share]
