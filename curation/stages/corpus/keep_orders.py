# SPDX-License-Identifier: Apache-2.0
"""The order of documents by a number or a date, as integers: the document with the highest order of a group is kept.

Stages with the settings `keep: {highest: COLUMN}` and `keep: {newest: COLUMN}` compute it as the key `ORDER`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import batches_of
from curation.base.contract import ID, TEXT
from curation.base.errors import InputError, counted
from curation.reading.split_settings import SEPARATOR, ids_of_records
from curation.rules.columns import has_kind, numbers_of, written_numbers

if TYPE_CHECKING:
    from curation.base.contract import Engine, Frame
    from curation.stages.outcome import Corpus

FIRST, ORDER = "first", "order"  # setting; key
Keep = str | list[str] | dict[str, str]
POLICIES = {"highest": "number", "newest": "date"}  # -> kind of the values in the column
MISSING, UNREADABLE = 0, 1  # orders of documents without a value, and with one that cannot be read
COUNTS = ("without_value", "unreadable")
SIGN = np.uint64(1 << 63)
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?)?"
_ZONE = r"(?P<zone>(?i:Z|UTC|GMT)|[+-]\d\d(?::?\d\d)?)"
_NAMED = r"(?P<month>(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))"
_DAY_NAME = r"(?i:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?)"
FORMS = (
    # ISO 8601, also as in WARC-Date: 2024, 2024-05, 2024-05-06, 2024-05-06T07:08:09.5Z
    rf"^(?P<year>\d{{4}})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d)(?:[Tt ]{_CLOCK} ?{_ZONE}?)?)?)?$",
    # The same without separators: 20240506, 20240506T070809Z, 20240506070809
    rf"^(?P<year>\d{{4}})(?P<month>\d\d)(?P<day>\d\d)"
    rf"(?:[Tt ]?(?P<hour>\d\d)(?P<minute>\d\d)(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?{_ZONE}?)?$",
    # HTTP and mail: Mon, 06 May 2024 07:08:09 GMT; Monday, 06-May-24 07:08:09 GMT; 6 May 2024
    rf"^(?:{_DAY_NAME}, ?)?(?P<day>\d{{1,2}})[ -]{_NAMED}[ -](?P<year>\d{{4}}|\d\d)(?: {_CLOCK}(?: {_ZONE})?)?$",
    # asctime: Mon May  6 07:08:09 2024
    rf"^{_DAY_NAME} {_NAMED} +(?P<day>\d{{1,2}}) {_CLOCK} (?P<year>\d{{4}})$",
)
FORMS_SHOWN = "ISO 8601 (2024-05-06T07:08:09Z), 20240506, 20240506070809, or Mon, 06 May 2024 07:08:09 GMT"


def check_policy(keep: dict[str, str]) -> None:
    """Raise ValueError unless `keep` maps exactly one policy to the name of the column that it compares."""
    if len(keep) != 1 or not {*keep} <= {*POLICIES}:
        raise ValueError(f"keep takes either highest or newest, not {', '.join(keep) or 'none'}")
    [(policy, column)] = keep.items()
    if column in ("", TEXT, ID):
        raise ValueError(f"keep: {policy} must name a column of {POLICIES[policy]}s, not {column!r}")


def policy_columns(keep: Keep) -> tuple[str, ...]:
    """Return the name of the column by which documents are kept; no name for any other setting."""
    return (*keep.values(),) if isinstance(keep, dict) else ()


def shown_policy(keep: Keep) -> str:
    """Return the setting as readable text."""
    return " ".join(*keep.items()) if isinstance(keep, dict) else str(keep)


def order_key(engine: Engine, frame: Frame, keep: Keep) -> dict[str, np.ndarray]:
    """Return the key `ORDER`: the order of each row by its number or date, uint64. If `keep` names no column, return no
    key."""
    if not isinstance(keep, dict):
        return {}
    [(policy, name)] = keep.items()
    column = read_column(engine, frame, name)
    if policy == "newest":
        return {ORDER: orders_of_dates(as_strings(column, name))}
    is_number = has_kind(column.type, "number") or has_kind(column.type, "truth")
    is_number &= not pa.types.is_null(column.type)  # for a column of nulls, `has_kind` is always true
    return {ORDER: orders_of_numbers(column if is_number else as_strings(column, name))}


def value_counts(corpus: Corpus, keep: Keep) -> dict[str, int]:
    """Return the number of documents without a value, and with a value that cannot be read; empty if `keep` names no
    column."""
    if not isinstance(keep, dict):
        return {}
    counts = dict.fromkeys(COUNTS, 0)
    for partition in range(len(corpus.storage.starts) - 1):
        orders = corpus.between(partition, partition + 1).column(ORDER)
        counts["without_value"] += int(np.count_nonzero(orders == MISSING))
        counts["unreadable"] += int(np.count_nonzero(orders == UNREADABLE))
    return counts


def check_values(keep: Keep, details: Mapping[str, Any], documents: int) -> None:
    """Raise InputError if documents have values, but none of the values can be read."""
    if isinstance(keep, dict) and details["unreadable"] and sum(details[name] for name in COUNTS) == documents:
        [(policy, column)] = keep.items()
        known = f" in a known form: {FORMS_SHOWN}" if policy == "newest" else ""
        raise InputError(
            f"keep: column {column!r} has no {POLICIES[policy]} in any of {counted(documents, 'document')}{known}. "
            f"Name a column of {POLICIES[policy]}s, or give keep: first"
        )


def checked_counts(corpus: Corpus, keep: Keep) -> dict[str, int]:
    """Return `value_counts` after `check_values`."""
    counts = value_counts(corpus, keep)
    check_values(keep, counts, len(corpus.rows))
    return counts


def value_lines(keep: Keep, details: Mapping[str, Any]) -> list[str]:
    """Return a line with the counts, for the report."""
    if not isinstance(keep, dict):
        return []
    [(policy, column)] = keep.items()
    missing = counted(details["without_value"], "document")
    unread = f"{details['unreadable']:,} with one that is no {POLICIES[policy]}"
    return [f"keep: {policy} {column}: {missing} without a value, {unread}"]


def value_warnings(keep: Keep, details: Mapping[str, Any], documents: int) -> list[str]:
    """Return a warning if no document has a value."""
    if not isinstance(keep, dict) or not documents or details.get("without_value") != documents:
        return []
    [(policy, column)] = keep.items()
    none = f"none of {counted(documents, 'document')} has a {POLICIES[policy]} in {column}"
    return [f"{none}; keep: {policy} kept the first of each group"]


def order_weight(corpus: Corpus, rows: np.ndarray) -> np.ndarray:
    """Return a weight per row (int64). The row with the highest order has the lowest weight."""
    return _as_rank(corpus.of(rows).column(ORDER))


def read_column(engine: Engine, frame: Frame, name: str) -> pa.ChunkedArray:
    """Return a column in host memory. In the column `id`, parts of records without an id have null. Raises InputError
    for `id` of a frame without ids."""
    if name == ID and ID not in frame.columns:
        raise InputError(f"the frame has no column {ID!r}; it has {list(frame.columns)}")
    column = engine.to_arrow(frame[[name]]).column(0)
    if name == ID and SEPARATOR in frame.columns:
        return ids_of_records(column)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return pc.if_else(pc.is_nan(column), None, column) if pa.types.is_floating(column.type) else column


def as_strings(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return a column as strings. Raises InputError for lists and other types that have no string form."""
    try:
        return column.cast(pa.large_string())
    except pa.ArrowException:
        raise InputError(f"column {name!r} holds {column.type}; give a column of strings, numbers or dates") from None


def orders_of_numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Return the order of each number, uint64, from 2 on. Numbers, also those written in strings, are compared as
    float64."""
    if has_kind(column.type, "text"):
        numbers, is_missing = written_numbers(column), _is_empty(column)
    else:
        numbers = numbers_of(column)
        is_missing = np.isnan(numbers)
    return _marked(order_of_floats(numbers), np.isnan(numbers), is_missing)


def order_of_floats(numbers: np.ndarray) -> np.ndarray:
    """Return uint64 values in the order of float64 numbers; the value of NaN is undefined."""
    bits = (numbers + 0.0).view(np.uint64)  # + 0.0: -0.0 equals 0.0
    return np.where(bits & SIGN, ~bits, bits | SIGN)


def orders_of_dates(column: pa.ChunkedArray) -> np.ndarray:
    """Return the order of each string with a date in one of FORMS: uint64, from 2 on, higher for later dates. A date
    without a zone is in UTC. Years of two digits are from 1969 to 2068."""
    strings = pc.utf8_trim_whitespace(column).combine_chunks()
    times = np.zeros(len(strings), np.int64)
    unread = np.ones(len(strings), bool)
    for rows, found, is_date in _found(strings):
        unread[rows[is_date]] = False
        times[rows[is_date]] = found[is_date]
    return _marked(times.view(np.uint64) ^ SIGN, unread, _is_empty(strings))


def _marked(orders: np.ndarray, is_unreadable: np.ndarray, is_missing: np.ndarray) -> np.ndarray:
    orders[is_unreadable] = UNREADABLE
    orders[is_missing] = MISSING
    return orders


def _is_empty(strings: pa.Array | pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.equal(pc.utf8_trim_whitespace(strings), "").fill_null(True))


def _found(strings: pa.Array) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield for each form the rows with a date in this form, their times in microseconds, and whether each time
    exists."""
    left = np.flatnonzero(~_is_empty(strings))
    for form in FORMS:
        if not len(left):
            return
        parts = pc.extract_regex(strings.take(pa.array(left)), pattern=form)
        has_form = np.asarray(parts.is_valid())
        if has_form.any():
            fields = parts.filter(pa.array(has_form))
            names = [field.name for field in fields.type]
            yield left[has_form], *_times({name: pc.struct_field(fields, name) for name in names})
        left = left[~has_form]


def _times(fields: dict[str, pa.Array]) -> tuple[np.ndarray, np.ndarray]:
    """Return the time of each row in microseconds since 1970 (int64), and whether its date exists: 30 February does
    not."""

    def number(name: str, default: int = 0) -> np.ndarray:
        if name not in fields:
            return np.full(len(fields["year"]), default)
        digits = pc.if_else(pc.equal(fields[name], ""), str(default), fields[name])
        return digits.cast(pa.int64()).to_numpy(zero_copy_only=False)

    year = number("year")
    short = np.asarray(pc.equal(pc.binary_length(fields["year"]), 2))
    year = np.where(short, np.where(year < 69, 2000, 1900) + year, year)
    if _is_name(fields.get("month")):
        month = pc.index_in(pc.ascii_lower(fields["month"]), pa.array(MONTHS)).to_numpy(zero_copy_only=False) + 1
    else:
        month = number("month", 1)
    day, hour, minute, second = number("day", 1), number("hour"), number("minute"), number("second")
    exists = (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31) & (hour < 24) & (minute < 60) & (second <= 60)
    months = (year - 1970).astype("M8[Y]").astype("M8[M]") + (np.clip(month, 1, 12) - 1)
    days = months.astype("M8[D]") + (np.clip(day, 1, 31) - 1)
    exists &= days.astype("M8[M]") == months
    offset, has_zone = _offset(fields)
    seconds = ((days.astype(np.int64) * 24 + hour) * 60 + minute - offset) * 60 + second
    return seconds * 1_000_000 + _microseconds(fields), exists & has_zone


def _is_name(month: pa.Array | None) -> bool:
    """Return whether the months are names or numbers. All dates of one form are alike, so the first month decides."""
    return month is not None and len(month) > 0 and month[0].as_py().isalpha()


def _offset(fields: dict[str, pa.Array]) -> tuple[np.ndarray, np.ndarray]:
    """Return the offset of each time zone from UTC in minutes, and whether such an offset exists."""
    if "zone" not in fields:
        return np.zeros(len(fields["year"]), np.int64), np.ones(len(fields["year"]), bool)
    digits = pc.replace_substring(fields["zone"], ":", "")
    is_offset = pc.match_substring_regex(digits, pattern=r"^[+-]")
    digits = pc.utf8_rpad(pc.if_else(is_offset, digits, "+"), 5, "0")
    hours, minutes = (pc.utf8_slice_codeunits(digits, at, at + 2).cast(pa.int64()).to_numpy() for at in (1, 3))
    sign = np.where(np.asarray(pc.starts_with(digits, "-")), -1, 1)
    return sign * (hours * 60 + minutes), (hours < 24) & (minutes < 60)


def _microseconds(fields: dict[str, pa.Array]) -> np.ndarray:
    if "fraction" not in fields:
        return np.zeros(len(fields["year"]), np.int64)
    digits = pc.utf8_slice_codeunits(pc.utf8_rpad(fields["fraction"], 6, "0"), 0, 6)
    return np.asarray(digits.cast(pa.int64()).to_numpy(zero_copy_only=False))


def split_rank(keys: np.ndarray) -> np.ndarray:
    """Return the rank of each row by its order, which is the third column of `keys`. The highest order has the lowest
    rank. `keys` is shrunk to two columns: it may hold all rows, so this frees much memory."""
    rank = _as_rank(keys[:, 2])
    flat = keys.reshape(-1)
    for batch in batches_of(len(keys)):
        flat[2 * batch.start : 2 * batch.stop] = keys[batch, :2].reshape(-1)
    del flat
    keys.resize((len(keys), 2), refcheck=False)
    return rank


def _as_rank(orders: np.ndarray) -> np.ndarray:
    """Return ranks (int64). The highest order has the lowest rank. A missing value ranks like one that cannot be
    read."""
    rank = np.maximum(orders, np.uint64(UNREADABLE))
    rank = np.invert(np.bitwise_xor(rank, SIGN, out=rank), out=rank)
    return rank.view(np.int64)
