# SPDX-License-Identifier: Apache-2.0
"""Short tracebacks in IPython: frames of the user's own code and the message. IPython asks an exception for its lines
by `_render_traceback_`, and a run adds up to 200 lines of this package, its libraries and their threads."""

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
SHORT_MODE = "Context"  # the default of %xmode; in the others a user has asked for all frames
FLAGS = ("force", "force_disk")
OPTION = re.compile(
    r"--(force-disk|force|output|input|engine|workers|work|text-column)(?![\w-])(?: (cpu|gpu|[A-Z]{2,}))?"
)
ALL_FRAMES = "%tb Verbose shows all frames"


def rendered(error: BaseException, message: str) -> list[str]:
    """Return the lines that IPython shows of an exception; in modes other than the default, those of IPython.

    message   of the error, which is the last line but one; with arguments in place of options of the command
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
            if (code.co_filename, number) == last:  # a comprehension, which is a frame before Python 3.12
                continue
            last = code.co_filename, number
            text = linecache.getline(code.co_filename, number).strip()
            function = "" if code.co_name == "<module>" else f", in {code.co_name}"
            shown += [f"{_name_of(shell, code.co_filename)}, line {number}{function}", f"    {text}"]
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return [*shown, f"{type(error).__name__}: {OPTION.sub(_as_argument, message)}", ALL_FRAMES]


def _as_argument(option: re.Match[str]) -> str:
    """The argument of a function for an option of the command."""
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
    """The name of a file of code: "Cell In[3]" for a cell."""
    named = shell.compile.format_code_name(file) if hasattr(shell.compile, "format_code_name") else None
    return " ".join(named) if named else f"File {file}"
