# SPDX-License-Identifier: Apache-2.0
"""The script of the page, which lets readers move the bounds of rules, and its data: the measures of a sample.

The security policy of the page allows only this script, by its digest, and no network.
"""

from __future__ import annotations

import hashlib
import math
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from curation.base.system.terminal import UNSAFE, printable

SCRIPT = Path(__file__).with_name("live.js").read_text("utf-8")
SCRIPT_DIGEST = b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
DATA_BYTES = 1_750_000  # maximum for all filters; filters beyond it get no sliders

Key = tuple[int, int, str, str, float, float]  # column, group (-1: all documents), reason, measure, bounds


class Sliders:
    """The filters whose rules have sliders.

    filters  stage -> index of its data
    rules    stage -> rule -> index among the rules of the filter
    data     JSON for the script
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.filters: dict[str, int] = {}
        self.rules: dict[str, dict[Key, int]] = {}
        stages = {stage["name"]: stage for stage in content["stages"]}
        encoded: list[bytes] = []
        size = 0
        for entry in content["measured"]:
            found = orjson.dumps(entry | _counts(stages[entry["stage"]]))
            size += len(found)
            if size > DATA_BYTES:
                break
            self.filters[entry["stage"]] = len(encoded)
            self.rules[entry["stage"]] = {_key(entry, rule): place for place, rule in enumerate(entry["rules"])}
            encoded.append(found)
        data = f"[{b','.join(encoded).decode()}]".replace("<", "\\u003c")
        self.data = UNSAFE.sub(lambda found: f"\\{printable(found[0])}", data)  # the script shows `\u202e` as text

    def place(self, stage: str, rule: Mapping[str, Any], column: int = -1, group: int = -1) -> int | None:
        """Return the index of a rule of `report.json` among the rules of its filter; None if it has no slider."""
        key = column, group, rule["reason"], rule["measure"], *_bounds(rule)
        return self.rules.get(stage, {}).get(key)


def _counts(stage: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of removed documents of a filter; and for each group, its documents and its removed
    documents."""
    sizes = [
        [[group["documents"], sum(group["reasons"].values())] for group in column["groups"] if "rules" in group]
        for column in stage.get("groups", [])
    ]
    return {"removed": sum(stage["reasons"].values()), "sizes": sizes}


def _key(entry: Mapping[str, Any], rule: Mapping[str, Any]) -> Key:
    measure = " / ".join(entry["measures"][place] for place in rule["measures"])
    return rule.get("column", -1), rule.get("group", -1), rule["reason"], measure, *_bounds(rule)


def _bounds(rule: Mapping[str, Any]) -> tuple[float, float]:
    return rule.get("min", -math.inf), rule.get("max", math.inf)
