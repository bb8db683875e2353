# SPDX-License-Identifier: Apache-2.0
"""Rules on lists in files. They count how many different entries of a list a value or a text contains.

Entries are stored as sorted 64-bit hashes, 9 bytes per domain. A run writes them to a file once, and its processes
memory-map this file.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from curation.base.arrays import text_buffers
from curation.base.errors import InputError, RecipeError, counted, near_or_nothing
from curation.base.system.files import commit, known_sha256
from curation.kernels.word_breaks import SPACES, TABLE
from curation.rules.columns import Texts, has_kind, on_host
from curation.rules.hosts import hosts_of
from curation.rules.list_files import MAX_SHOWN, EntryBatch, read_entries, shown_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from curation.kernels.stop_words import StopWords

WORD, STOP_WORD = "word", "stop_word"
OF_WORDS = (WORD, STOP_WORD)  # entries are words; the setting `words` of a stage may divide them
WAYS = ("domain", WORD, "value", "part", STOP_WORD)
# Korean particles of nouns, and endings of verbs with forms of 하다, 되다, 있다, 이다, of at most MAX_ENDING syllables.
# FineWeb-2's stop words are morphemes, and no spaces separate these.
PARTICLES = (
    *"은는이가을를의에도로와과만나랑",
    *("에서", "으로", "까지", "부터", "에게", "한테", "께서", "처럼", "보다", "마다", "하고", "이나", "에는", "에도"),
)
VERB_ENDINGS = (
    *"다고한인된할며면지게서던했",
    *("는데", "지만", "면서", "니다", "한다", "했다", "된다", "됐다", "이다", "였다", "있다", "없다", "하는", "되는"),
    *("있는", "하여", "해서", "습니다", "입니다", "합니다", "됩니다"),
)
STORED = ".entries"  # suffix of the file in which a run has stored a list
LISTS_KEPT = 64  # lists in memory
BUCKET_BITS = 2  # on average, 2^2 keys share the same first bits
SHOWN_ENTRIES = 3


class Listed(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, repr_omit_defaults=True,
    rename={"as_": "as"},
):  # fmt: skip
    """A list for a rule: the entries of a file, or some words.

    file      text with an entry per line, plain or compressed (gzip, zstd, bzip2, xz), or a tar archive of such files
    as_       (`as`) what an entry is: `domain`, the host of a URL or a parent of it; `word`, runs of letters and
              digits, in lower case; `value`, the whole value; `part`, anywhere, in lower case and without all but
              letters and digits; `stop_word`, a word as the measure `words` counts it, by case
    member    the file in the archive, such as `adult/domains`; several names make one list
    words     the entries themselves, for `stop_word`, in place of a file
    """

    as_: str
    file: str = ""
    member: str | tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.words and not self.file:
            self._check_words()
            return
        if self.words:
            raise ValueError(f"listed takes a file or words, not both: {self.file} and {self.words[0]!r}")
        if not isinstance(self.file, str) or not self.file:
            raise ValueError(f"file of listed must be the path of a file, not {self.file!r}")
        if "://" in self.file:
            raise ValueError(f"listed takes a local file, not {self.file}; download it first")
        if self.as_ not in WAYS:
            raise ValueError(f"as must be one of {', '.join(WAYS)}, not {self.as_!r}{near_or_nothing(self.as_, WAYS)}")
        names = self.member if isinstance(self.member, str) else tuple(self.member)
        if names == "" or not all(isinstance(name, str) and name for name in names):
            raise ValueError(f"member must name a file of the archive, such as adult/domains, not {self.member!r}")
        msgspec.structs.force_setattr(self, "member", names)

    def _check_words(self) -> None:
        if self.as_ != STOP_WORD or self.member:
            raise ValueError(f"words of listed are for as: {STOP_WORD} without member; put other entries into a file")
        wrong = [word for word in self.words if not isinstance(word, str) or len(word.split()) != 1]
        if wrong:
            raise ValueError(f"words of listed are single words without white space, not {wrong[0]!r}")
        msgspec.structs.force_setattr(self, "words", tuple(self.words))

    @property
    def members(self) -> tuple[str, ...]:
        """The files in the archive; none for a file that is no archive."""
        return (self.member,) if isinstance(self.member, str) else self.member

    def describe(self) -> str:
        """Return the list as readable text: `entries of bad.txt as domain`."""
        if self.words:
            return f"{counted(len(self.words), 'word')} as {self.as_} ({', '.join(self.words[:SHOWN_ENTRIES])}...)"
        where = f"{', '.join(self.members)} in {self.file}" if self.members else self.file
        return f"entries of {where} as {self.as_}"


class Entries(NamedTuple):
    """A list in memory.

    keys      uint64, ascending: the hash of each distinct entry
    starts    uint32: first bits of a key -> index of the first key with these bits
    lengths   int64, ascending: the lengths of entries that occur, in words or in bytes; empty for domains and values
    filters   uint64[6, 65536] for parts: see `curation.kernels.lists.hash_folded`; else empty
    """

    keys: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    filters: np.ndarray

    @property
    def shift(self) -> np.uint64:
        """Number of bits of a key that `starts` does not use."""
        return np.uint64(64 - (len(self.starts) - 1).bit_length() + 1)


class Notes(NamedTuple):
    """Counts and examples of doubtful lines in a list.

    bad      number of lines that are no entries; `first_bad` has the first
    single   number of domains of one label, such as `com`; `first_single` has the first
    """

    entries: int
    bad: int
    first_bad: tuple[str, ...]
    single: int
    first_single: tuple[str, ...]


def digest_of(listed: Listed) -> str:
    """Return the SHA-256 of the file of a list; "" for given words. Raises InputError if the file cannot be opened."""
    return known_sha256(listed.file) if listed.file else ""


def entries_of(listed: Listed, words: str = "") -> Entries:
    """Return the entries of a list. Each process reads the file only once, unless it changes. Raises InputError if the
    file cannot be read or has no entries.

    words   how texts are divided into words (`curation.kernels.word_breaks.WORDS`); entries of `word` are divided in
            the same way
    """
    return _load(listed, digest_of(listed), _division(listed, words))[0]


def notes_of(listed: Listed, words: str = "") -> Notes:
    """Return the notes about a list. Arguments and errors are those of `entries_of`."""
    return _load(listed, digest_of(listed), _division(listed, words))[1]


def _division(listed: Listed, words: str) -> str:
    """Return how entries are divided into words; "" if they are not divided."""
    return words if listed.as_ == WORD and words != SPACES else ""


@functools.lru_cache(LISTS_KEPT)
def _load(listed: Listed, digest: str, words: str = "") -> tuple[Entries, Notes]:
    if listed.file.endswith(STORED):
        return _stored(Path(listed.file)), Notes(0, 0, (), 0, ())
    bad: list[str] = []
    single: list[str] = []
    counts = np.zeros(2, np.int64)
    found = _Builder(listed.as_, words)
    for batch in [_given(listed)] if listed.words else read_entries(listed.file, listed.members, listed.as_):
        wrong = [*batch.bad, *found.add(batch.entries, batch.lines)]
        counts += len(wrong), batch.single
        bad += wrong[: MAX_SHOWN - len(bad)]
        single += batch.first_single[: MAX_SHOWN - len(single)]
    entries = found.entries()
    if not len(entries.keys):
        what = f"; {counted(int(counts[0]), 'line')} without one, the first: {bad[0]}" if bad else ""
        raise InputError(f"{listed.describe()}: there are none{what}. Expected one per line")
    return entries, Notes(len(entries.keys), int(counts[0]), tuple(bad), int(counts[1]), tuple(single))


def _given(listed: Listed) -> EntryBatch:
    return EntryBatch(pa.array(listed.words, pa.large_string()), np.arange(1, len(listed.words) + 1), [])


class _Builder:
    """Collects the hashes of the entries of a list, batch by batch."""

    def __init__(self, way: str, words: str) -> None:
        self.way = way
        self.words = words
        self.keys = [np.zeros(0, np.uint64)]
        self.lengths: set[int] = set()
        self.filters = np.zeros(_filter_shape() if way == "part" else (0, 0), np.uint64)

    def add(self, entries: pa.LargeStringArray, lines: np.ndarray) -> list[str]:
        """Add entries. Return messages about lines that cannot be entries."""
        from curation.kernels import lists

        data, offsets = text_buffers(entries)
        keys, sizes = np.zeros(len(entries), np.uint64), np.zeros(len(entries), np.int64)
        if self.way in ("domain", "value"):
            lists.hash_values(data, offsets, keys)
            self.keys.append(keys)
            return []
        if self.way == STOP_WORD:
            from curation.kernels import stop_words

            stop_words.hash_words(data, offsets, *_spaces(), keys, sizes)
            good = sizes == 1
            self.keys.append(keys[good])
            return [shown_line(int(lines[k]), entries[k].as_py()) for k in np.flatnonzero(~good).tolist()]
        separated = self.way == WORD
        if self.words:
            data, offsets = _divided(data, offsets, self.words)
        lists.hash_folded(data, offsets, separated, _buffer(offsets), _unicode(), keys, sizes, self.filters)
        good = (sizes > 0) & ((sizes <= lists.MAX_WORDS) | (self.way == "part"))
        self.lengths |= {*np.unique(sizes[good]).tolist()}
        self.keys.append(keys[good])
        return [shown_line(int(lines[k]), entries[k].as_py()) for k in np.flatnonzero(~good).tolist()]

    def entries(self) -> Entries:
        keys = np.concatenate(self.keys)
        self.keys.clear()
        keys.sort()
        is_new = np.ones(len(keys), bool)
        np.not_equal(keys[1:], keys[:-1], out=is_new[1:])
        return _indexed(keys if is_new.all() else keys[is_new], np.array(sorted(self.lengths), np.int64), self.filters)


def _divided(data: np.ndarray, offsets: np.ndarray, words: str) -> tuple[np.ndarray, np.ndarray]:
    """Return texts with a space between adjacent words, as `Engine.split_words` does."""
    from curation.kernels import word_breaks, word_lists

    out = np.empty(2 * int(offsets[-1] - offsets[0]), np.uint8)  # at most a space per character
    lists, rows = tuple(word_lists.load_word_lists()), np.arange(len(offsets) - 1)
    ends = word_breaks.split_rows(data, offsets, rows, words == TABLE, False, lists, word_breaks.allocate_span(), out)
    return out, ends


def _filter_shape() -> tuple[int, int]:
    from curation.kernels import lists

    return lists.PREFIXES, 1 << lists.SLOTS


def _indexed(keys: np.ndarray, lengths: np.ndarray, filters: np.ndarray) -> Entries:
    bits = max(len(keys).bit_length() - BUCKET_BITS, 1)
    firsts = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
    starts = np.append(np.searchsorted(keys, firsts), len(keys)).astype(np.uint32)
    entries = Entries(keys, starts, lengths, filters)
    for array in entries:
        array.setflags(write=False)  # read-only like memory-mapped arrays, so that kernels are compiled once for both
    return entries


# Stored lists


def store(listed: Listed, folder: Path, words: str = "") -> Listed:
    """Write the entries of a list to a file in `folder`, which all processes of a machine memory-map. Return the list
    with this file. `words` is as in `entries_of`."""
    facts = (listed.members, listed.as_, digest_of(listed), _division(listed, words))
    path = folder / f"{hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:16]}{STORED}"
    if not path.exists():
        entries = entries_of(listed, words)
        head = np.array([len(entries.keys), len(entries.lengths), entries.filters.size], np.uint64)
        with commit(path) as temporary, open(temporary, "wb") as file:
            for part in (head, entries.lengths, entries.filters, entries.keys):
                file.write(np.ascontiguousarray(part).view(np.uint8).data)
    return Listed(file=str(path), as_=listed.as_)


def _stored(path: Path) -> Entries:
    words = np.memmap(path, np.uint64, "r")
    num_keys, num_lengths, num_filters = words[:3].tolist()
    lengths, filters, keys = np.split(words[3:], [num_lengths, num_lengths + num_filters])
    if len(keys) != num_keys:
        raise InputError(f"{path} is damaged. Start over with --force")
    shape = _filter_shape() if num_filters else (0, 0)
    return _indexed(np.asarray(keys), lengths.astype(np.int64), np.asarray(filters).reshape(shape))


# Counts


def check_listed(rule: str, column: str, kind: pa.DataType, listed: Listed) -> None:
    """Raise RecipeError if a rule cannot search a column of this Arrow type for entries."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not has_kind(kind, "text") and not (listed.as_ == "value" and pa.types.is_integer(kind)):
        wanted = "strings and integers" if listed.as_ == "value" else "strings"
        raise RecipeError(f"rule {rule}: column {column!r} holds {kind}, but listed as {listed.as_} is for {wanted}")


def count_listed(column: pa.ChunkedArray, listed: Listed, words: str = "") -> np.ndarray:
    """Return how many different entries of a list each row of a column contains, float64; 0 for a null.

    The column has strings, or integers for `value`. `words` is as in `entries_of`; the strings are divided in this way
    already.
    """
    from curation.kernels import lists

    if listed.as_ == STOP_WORD:
        return count_stop_words(column, {0: listed}, words=words)[0]
    entries = entries_of(listed, words)
    keyed = entries.keys, entries.starts, entries.shift
    counts = np.zeros(len(column), np.int64)
    for start, chunk in _chunks(column):
        data, offsets = text_buffers(hosts_of(chunk) if listed.as_ == "domain" else chunk)
        out = counts[start : start + len(chunk)]
        # The system gives such an array memory only for the pages that are written
        stamps = np.zeros(len(entries.keys) if len(entries.lengths) else 0, np.uint32)
        if listed.as_ == WORD:
            mask = sum(1 << (length - 1) for length in entries.lengths.tolist())
            lists.count_words(data, offsets, _buffer(offsets), _unicode(), mask, *keyed, stamps, out)
        elif listed.as_ == "part":
            scanned = (_buffer(offsets), _unicode(), entries.filters, entries.lengths)
            lists.count_parts(data, offsets, *scanned, *keyed, stamps, out)
        else:
            lists.count_values(data, offsets, listed.as_ == "domain", *keyed, out)
    return counts.astype(np.float64)


def count_stop_words(
    column: pa.ChunkedArray | Texts,
    by_number: Mapping[int, Listed],
    numbers: np.ndarray | None = None,
    words: str = "",
) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays for a column of strings: how many different words of a list each row contains, and how many of
    its words are in the list. Both are float64, 0 for a null.

    by_number  number of a list -> the list
    numbers    int32: the number of the list for each row; default: 0
    words      how the strings are divided into words. Unless spaces divide them, Korean endings are also recognised
    """
    lists = (*((number, listed, digest_of(listed)) for number, listed in by_number.items()),)
    table = _table(lists, words not in ("", SPACES))
    numbers = np.zeros(len(column), np.int32) if numbers is None else numbers
    if isinstance(column, Texts):
        counts = column.engine.count_stop_words(column.text, table, numbers)
    else:
        counts = _count_in_column(column, table, numbers)
    return counts[0].astype(np.float64), counts[1].astype(np.float64)


def _count_in_column(column: pa.ChunkedArray, table: StopWords, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what `Engine.count_stop_words` returns, for a column on the host."""
    counts = np.zeros((2, len(column)), np.int64)
    for start, chunk in _chunks(column):
        rows = slice(start, start + len(chunk))
        counts[:, rows] = table.count(*text_buffers(chunk), numbers[rows])
    return counts[0], counts[1]


@functools.cache
def _endings() -> np.ndarray:
    return _hashed((*PARTICLES, *VERB_ENDINGS))


def _hashed(words: Sequence[str]) -> np.ndarray:
    """Return the hash of each word, uint64."""
    from curation.kernels import stop_words

    keys = np.zeros(len(words), np.uint64)
    data, offsets = text_buffers(pa.array(words, pa.large_string()))
    stop_words.hash_words(data, offsets, *_spaces(), keys, np.zeros(len(words), np.int64))
    return keys


@functools.lru_cache(LISTS_KEPT)
def _table(lists: tuple[tuple[int, Listed, str], ...], has_endings: bool) -> StopWords:
    """Return the words of several lists in one table. Each key is a hash of a word and the number of its list."""
    from curation.kernels import stop_words

    parts = [_load(listed, digest)[0].keys for _, listed, digest in lists if listed.file]
    given = _hashed([word for _, listed, _ in lists for word in listed.words])  # thousands of lists
    words = np.concatenate([*parts, given])
    numbers = [number for number, listed, _ in lists if listed.file]
    numbers += [number for number, listed, _ in lists for _ in listed.words]
    sizes = [*map(len, parts), *[1] * len(given)]
    owners = np.repeat(np.array(numbers, np.int64), sizes)
    keys = np.empty(len(words), np.uint64)
    filters = np.zeros((max(numbers) + 1, stop_words.FILTER_WORDS), np.uint64)
    stop_words.mix_numbers(words, owners, keys, filters)
    keys, first = np.unique(keys, return_index=True)
    entries = _indexed(keys, np.zeros(0, np.int64), filters)
    endings = _endings() if has_endings else np.zeros(0, np.uint64)
    return stop_words.StopWords(
        keys, entries.starts, entries.shift, filters, _ranks(owners[first]).astype(np.int32), endings
    )


def _ranks(owners: np.ndarray) -> np.ndarray:
    """Return for each item how many items before it have the same owner."""
    order = np.argsort(owners, kind="stable")
    sizes = np.unique(owners, return_counts=True)[1]
    ranks = np.empty(len(owners), np.int64)
    ranks[order] = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return ranks


def _chunks(column: pa.ChunkedArray) -> Iterator[tuple[int, pa.LargeStringArray]]:
    """Yield pairs: the row of a chunk's first value, and the chunk as large strings, with "" for nulls."""
    column = on_host(column)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    start = 0
    for chunk in column.cast(pa.large_string()).fill_null("").chunks:
        yield start, chunk
        start += len(chunk)


def _spaces() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the tables that find white space: pages, records and flags of `UnicodeTables`."""
    from curation.kernels import tables

    unicode = tables.load_tables()
    return unicode.pages, unicode.records, unicode.flags


def _buffer(offsets: np.ndarray) -> np.ndarray:
    """Return an array that can hold the longest text after folding. In lower case, two bytes become three at most."""
    longest = int(np.diff(offsets).max(initial=0))
    return np.empty(longest + longest // 2 + 16, np.uint8)


@functools.cache
def _unicode() -> tuple[Any, ...]:
    """Return the tables that fold text: one for ASCII, those of `UnicodeTables`, and one of the marks (category M*)."""
    import unicodedata2

    from curation.kernels import tables

    unicode = tables.load_tables()
    folded = np.zeros(256, np.uint8)
    for byte in filter(str.isalnum, map(chr, range(128))):
        folded[ord(byte)] = ord(byte.lower())
    marks = np.array([unicodedata2.category(chr(code)).startswith("M") for code in range(1 << 17)], np.uint8)
    return folded, unicode.pages, unicode.records, unicode.flags, unicode.lower, marks
