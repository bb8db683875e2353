# SPDX-License-Identifier: Apache-2.0
"""Renders the templates of this folder. All text from outside is escaped, cut and free of control characters.

`{{ }}` does this with every string, and writes whole numbers with commas. Only the text of templates is HTML.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curation.base.errors import counted
from curation.base.system.memory import shown_bytes
from curation.base.system.packages import package_version
from curation.base.system.terminal import printable, printable_line
from curation.kernels.cache import FOLDER, keep
from curation.results.report.marks import Span, pieces

if TYPE_CHECKING:
    from jinja2 import Environment

MAX_CHARACTERS = 300  # maximum characters of a name, reason, path or line


def rendered(template: str, content: Mapping[str, Any]) -> str:
    """Return the page of a Jinja template in this folder."""
    return _environment().get_template(template).render(content)


@lru_cache(1)
def _environment() -> Environment:
    from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
    from jinja2.bccache import Bucket

    # Jinja itself compares the source of the template and the version of Python
    settings = hashlib.sha256(package_version("jinja2").encode() + Path(__file__).read_bytes()).hexdigest()[:16]

    def file_of(bucket: Bucket) -> Path:
        return FOLDER / f"template-{settings}-{bucket.key}"

    class CompiledTemplates(BytecodeCache):
        """Keeps compiled templates beside compiled kernels: compiling them takes longer than rendering."""

        def load_bytecode(self, bucket: Bucket) -> None:
            with suppress(OSError):
                bucket.bytecode_from_string(file_of(bucket).read_bytes())

        def dump_bytecode(self, bucket: Bucket) -> None:
            keep(file_of(bucket), bucket.bytecode_to_string())

    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, auto_reload=False,
        finalize=_shown, trim_blocks=True, lstrip_blocks=True, bytecode_cache=CompiledTemplates(),
    )  # fmt: skip
    made.filters |= {"block": _block, "format": format}
    made.filters |= {function.__name__: function for function in (counted, number, ranked, signed, size)}
    made.globals |= {function.__name__: function for function in (fit, percent, share)}
    return made


def _shown(value: Any) -> Any:
    if isinstance(value, str) and not hasattr(value, "__html__"):
        line = printable_line(value)
        return line if len(line) <= MAX_CHARACTERS else f"{line[:MAX_CHARACTERS]}…"
    return f"{value:,}" if isinstance(value, int) else value


def _block(text: str, marks: Iterable[Span] = ()) -> str:
    """Return a text of several lines as HTML, in which the spans `marks` are marked."""
    from markupsafe import Markup, escape

    parts = ((escape(printable(part)), marked) for part, marked in pieces(text, list(marks)))
    return Markup("").join(Markup("<mark>{}</mark>").format(part) if marked else part for part, marked in parts)


def fit(
    shown: Callable[[Any], str], entries: Sequence[Any], max_bytes: int, most: int | None = None
) -> tuple[str, int]:
    """Return the first entries as HTML, and the number of the other entries. The HTML has at most `max_bytes` and at
    most `most` entries.

    shown   template macro that renders an entry
    """
    from markupsafe import Markup

    taken: list[str] = []
    used = 0
    for text in map(shown, islice(entries, most)):
        used += len(text.encode())
        if used > max_bytes:
            break
        taken.append(text)
    return Markup("").join(taken), len(entries) - len(taken)


def ranked(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the names with counts above 0, sorted by count, the largest first."""
    return sorted(filter(itemgetter(1), counts.items()), key=lambda pair: (-pair[1], pair[0]))


def size(bytes_: float) -> str:
    """Return a number of bytes as readable text."""
    return f"{bytes_ / 1e6:,.1f} MB" if 1e6 <= bytes_ < 1e7 else shown_bytes(bytes_)


def number(value: float) -> str:
    """Return a measure's value as readable text."""
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


def percent(part: float, whole: float) -> str:
    """Return a share in percent with one digit after the point, or two digits below 1 %. The page's JavaScript rounds
    by the same rule."""
    share = 100 * part / whole if whole else 0.0
    return "<0.01%" if 0 < share < 0.01 else f"{share:.{2 if 0 < share < 1 else 1}f}%"


def signed(number: int) -> str:
    """Return a difference with its sign."""
    return f"{'+' if number > 0 else '−' * (number < 0)}{abs(number):,}"


def share(part: float, whole: float) -> float:
    """Return `part / whole`, at most 1; 0 if `whole` is 0."""
    return min(part / whole, 1.0) if whole else 0.0
