# SPDX-License-Identifier: Apache-2.0
"""Write `curation/rules/fineweb2.json.xz`: bounds and stop words of the languages of FineWeb-2.

    git clone https://github.com/huggingface/fineweb-2
    pip install pyyaml
    python -m tests.scripts.make_fineweb2 fineweb-2/configs

`configs/` has a file per language, `deu_Latn.yml`, under the Apache License 2.0. Stop words of several words, of which
there are three, are left out: no word is equal to one.
"""

import argparse
import json
import lzma
from pathlib import Path
from typing import Any

import yaml

from curation.rules.fineweb2_file import COLUMNS, STORED

SOURCE = "configs/ of https://github.com/huggingface/fineweb-2, Apache-2.0"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SIZED = ("top_n_grams", "dup_n_grams")  # lists of (size of n-grams, bound)


def bounds_of(config: dict[str, Any]) -> dict[str, float]:
    """Return the bounds of a configuration by the names of COLUMNS, such as `top_2_grams`."""
    bounds = {name: config[name] for name in config if name in COLUMNS}
    return bounds | {f"{name[:3]}_{size}_grams": bound for name in SIZED for size, bound in config[name]}


def pack(folder: Path) -> bytes:
    """Return the content of the file for a folder of configurations."""
    configs = {path.stem: yaml.load(path.read_text("utf-8"), LOADER) for path in sorted(folder.glob("*.yml"))}
    content = {
        "source": SOURCE,
        "columns": COLUMNS,
        "languages": [*configs],
        "bounds": [[bounds_of(config)[name] for name in COLUMNS] for config in configs.values()],
        "stop_words": [[word for word in config["stopwords"] if len(word.split()) == 1] for config in configs.values()],
    }
    return lzma.compress(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(), preset=9)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", type=Path)
    STORED.write_bytes(pack(parser.parse_args().configs))
