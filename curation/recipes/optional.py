# SPDX-License-Identifier: Apache-2.0
"""Optional stages of a recipe: `when: stages.classify.model` leaves a stage out unless that setting is given."""

from __future__ import annotations

import re
from typing import Any

from curation.base.errors import nearest
from curation.stages import STAGES
from curation.stages.base import stage_names

WHEN = "when"
PATTERN = r"stages\.[^.]+\.[A-Za-z_]+"


def leave_out(content: Any) -> Any:
    """Return the content of a recipe with shorthands written out, without each `when` and the stages that it leaves
    out.  `left_out` in the result names these stages and the settings that they need. Raises ValueError for a wrong
    `when`.
    """
    if not isinstance(content, dict) or not isinstance(content.get("stages"), list):
        return content
    stages = content["stages"]
    if not any(isinstance(entry, dict) and WHEN in entry for entry in stages):
        return content
    names = _names(stages)
    kept, left_out = [], list(content.get("left_out") or [])
    for number, entry in enumerate(stages):
        if not isinstance(entry, dict) or WHEN not in entry:
            kept.append(entry)
        elif _is_given(stages, names, entry[WHEN], f"$.stages[{number}]"):
            kept.append({key: value for key, value in entry.items() if key != WHEN})
        else:
            left_out.append(f"{names[number]}: set {entry[WHEN]}")
    return {**content, "stages": kept, **({"left_out": left_out} if left_out else {})}


def _names(stages: list[Any]) -> list[str]:
    entries = [entry if isinstance(entry, dict) else {} for entry in stages]
    return stage_names([(str(entry.get("name") or ""), str(entry.get("kind"))) for entry in entries])


def _is_given(stages: list[Any], names: list[str], path: Any, where: str) -> bool:
    """Return whether the setting at a path has a value."""
    if not isinstance(path, str) or not re.fullmatch(PATTERN, path):
        raise ValueError(f"when must be a setting, such as stages.classify.model, not {path!r} - at `{where}`")
    _, stage, field = path.split(".")
    if stage not in names:
        raise ValueError(f"when: no stage named {stage!r}{nearest(stage, names)} - at `{where}`")
    entry = stages[names.index(stage)]
    kind = STAGES.get(str(entry.get("kind")))
    known = kind.__struct_encode_fields__ if kind else (field,)
    if field not in known:
        raise ValueError(f"when: {stage} has no field {field!r}{nearest(field, known)} - at `{where}`")
    return field in entry
