# SPDX-License-Identifier: Apache-2.0
"""Short tracebacks in IPython: only frames of the user's own code, and the message. A full traceback of a run has up to
200 lines of this package and its libraries. IPython calls `_render_traceback_` of an exception to get its lines."""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
from collections.abc import Iterator
from traceback import walk_tb
from types import CodeType
from typing import Any

OWN = {"curation", "cpu_fallback", "gpu_pipeline"}
SHORT_MODE = "Context"  # the default of %xmode; with other modes, a user asks for all frames
FLAGS = ("force", "force_disk")
OPTION = re.compile(
    r"--(force-disk|force|output|input|engine|workers|work|text-column)(?![\w-])(?: (cpu|gpu|[A-Z]{2,}))?"
)
ALL_FRAMES = "%tb Verbose shows all frames"


def rendered(error: BaseException, message: str) -> list[str]:
    """Return the lines that IPython shows for an exception. In modes other than the default, they are IPython's own
    lines.

    message   of the error. It becomes the last line but one; options of the command are written as arguments
    """
    shell: Any = sys.modules["IPython"].get_ipython()
    if shell.InteractiveTB.mode != SHORT_MODE:
        lines = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
        return [str(line) for line in lines]
    shown: list[str] = []
    each: BaseException | None = error
    last = ("", 0)
    while each is not None:
        for code, number in own_frames(each):
            if (code.co_filename, number) == last:  # before Python 3.12, a comprehension has its own frame
                continue
            last = code.co_filename, number
            text = linecache.getline(code.co_filename, number).strip()
            function = "" if code.co_name == "<module>" else f", in {code.co_name}"
            shown += [f"{_name_of(shell, code.co_filename)}, line {number}{function}", f"    {text}"]
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return [*shown, f"{type(error).__name__}: {OPTION.sub(_as_argument, message)}", ALL_FRAMES]


def _as_argument(option: re.Match[str]) -> str:
    """Return the function argument that corresponds to an option of the command."""
    name, value = option[1].replace("-", "_"), option[2]
    if name in FLAGS:
        return f"{name}=True"
    return f"{name}={value if value.isupper() else repr(value)}" if value else name


def own_frames(error: BaseException) -> Iterator[tuple[CodeType, int]]:
    """Yield code and line of the frames that belong neither to this package nor to an installed one."""
    installed = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
    for frame, number in walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        is_ours = str(frame.f_globals.get("__name__")).partition(".")[0] in OWN
        if not (is_ours or file.startswith((*installed, "<frozen")) or "site-packages" in file):
            yield frame.f_code, number


def _name_of(shell: Any, file: str) -> str:
    """Return the shown name of a code file, such as "Cell In[3]" for a cell."""
    named = shell.compile.format_code_name(file) if hasattr(shell.compile, "format_code_name") else None
    return " ".join(named) if named else f"File {file}"
