# SPDX-License-Identifier: Apache-2.0
"""Advice for a path that does not exist, such as one with an unreplaced variable, home folder or separator."""

from __future__ import annotations

import difflib
import os
import re

VARIABLE = re.compile(r"\$(?:\w+|\{\w+\})")
DRIVE = re.compile(r"([A-Za-z]):[\\/](.*)", re.DOTALL)
RECIPES = (".yaml", ".yml")
MAX_LISTED = 10_000  # names of a folder that are compared


def unreplaced(path: str) -> str:
    """Return the reason why a path is probably not meant literally, with the remedy; "" for a usual path.

    Only for paths that do not exist: a file may have any of these names.
    """
    if match := VARIABLE.search(path):
        return (
            f"{match[0]} was not replaced by the value of a variable. Write its value; a shell replaces it outside "
            "single quotes"
        )
    if path.startswith("~") and os.path.expanduser(path) == path:
        return f"there is no user of the name {path.split('/')[0].removeprefix('~')!r}. Write the path of the folder"
    if match := DRIVE.fullmatch(path):
        rest = match[2].replace("\\", "/")
        return f"it is a path of Windows. Write it as this system does; in WSL it is /mnt/{match[1].lower()}/{rest}"
    if "\\" in path:
        return f"folders are separated by /. Write {path.replace(chr(92), '/')}"
    return ""


def advice(path: str) -> str:
    """Return the end of a message about a path that does not exist: the reason of `unreplaced`, similar names in its
    folder, or ""."""
    if reason := unreplaced(path):
        return f"; {reason}"
    parts = path.split(",")
    if parts[1:] and all(map(os.path.exists, parts)):
        return f"; separate inputs by spaces: {' '.join(parts)}"
    folder, name = os.path.split(path.rstrip("/"))
    try:
        with os.scandir(folder or ".") as entries:
            names = [entry.name for entry, _ in zip(entries, range(MAX_LISTED), strict=False)]
    except (OSError, ValueError):
        return _missing_folder(folder)
    stems: dict[str, list[str]] = {}  # compared without suffixes, since equal suffixes make names look similar
    for other in sorted(names):
        stems.setdefault(other.partition(".")[0], []).extend([other] * (other != name))
    near = difflib.get_close_matches(name.partition(".")[0], stems, 3)
    close = [other for stem in near for other in stems[stem]]
    if name.endswith(RECIPES):
        close = [other for other in close if other.endswith(RECIPES)] or close
    return f"; did you mean {', '.join(os.path.join(folder, other) for other in close[:3])}?" if close else ""


def _missing_folder(folder: str) -> str:
    """Return a message with the first folder of a path that does not exist; "" if all exist."""
    try:
        while folder and not os.path.exists(folder) and os.path.dirname(folder) not in ("", folder):
            if os.path.exists(os.path.dirname(folder)):
                break
            folder = os.path.dirname(folder)
        return f"; there is no folder {folder}" if folder and not os.path.exists(folder) else ""
    except (OSError, ValueError):
        return ""
