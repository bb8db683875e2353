# SPDX-License-Identifier: Apache-2.0
"""tiktoken, Hugging Face and SentencePiece tokenizers behind one `encode`.

Two implementations stand behind each vocabulary. The *reference* (tiktoken, `tokenizers`, `sentencepiece`) says what is
right; gigatoken does the work where it can load the vocabulary and agrees on the probes, 10 to 20 times as fast. Every
batch re-encodes one document in a thousand with the reference, which costs 1 to 3 % and fails the run on a difference.
"""

from __future__ import annotations

import functools
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from curation.arrays import joined
from curation.errors import InputError, IntegrityError, RecipeError, TokenizerError
from curation.packing.megatron import MAX_SEQUENCE_TOKENS, choose_dtype
from curation.packing.vocabularies import Vocabulary, is_failure, load_vocabulary, vocabulary_files

if TYPE_CHECKING:
    import pyarrow as pa

CHECK_EVERY = 1000  # documents per document that the reference encodes again

# gigatoken 0.10.0 never evicts from its cache: 240 MB of random words took 2.9 GB (its issue 36; bounded after 0.10.0).
# A fresh object costs 0.1 s to load and 0.1 s to warm up.
MAX_CACHE_GROWTH_BYTES = 256 << 20

REFERENCE_DOCUMENTS = 256  # at once through the reference: `tokenizers` keeps about 100 bytes per token meanwhile

MAX_SPECIAL_CHARACTERS = 10_000  # RE2 refuses a pattern of some megabytes
SHOWN_CHARACTERS = 60

PROBES = (
    "",
    " ",
    "\n",
    "\t \r\n \u00a0 \u2003 \u3000x  y   z    ",
    "Hello world, it's THE end; we'll can't I'M don’t __init__ a1b22c333 4444 55555.66 -7e-8",
    "naïve café e\u0301 \u1e9b\u0323 İstanbul ß ŒUVRE ﬁ Ⅷ ² ½ ٣٤ ०१",
    "👩‍👩‍👧‍👦👍🏽🇫🇷❤️ \ufeff\u200b\u200d zero\x00width \x1f",
    "中文沒有空格。ひらがなカタカナ 한국어 ภาษาไทย العربية עברית हिन्दी Ελληνικός русский",
    "def f(x):\n    return {'a': [1, 2]}  # <b>http://example.org/?q=%20&r=1</b>\n\n\n\tif x:\n\t\tpass\n",
    "a" * 300 + " " * 300 + "\n" * 50 + "!" * 100 + "1" * 100 + "ab" * 100,
    "<s> </s> <unk> <pad> [CLS] [SEP] <|im_start|> <|endoftext|> <0x0A> ▁under▁score",
)


class TokenizerSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tokenizer, and what is put around each document.

    `name` is the name of a tiktoken encoding (`gpt2`, `cl100k_base`, ...), or else the path of a Hugging Face
    `tokenizer.json` or of a folder that holds one, or the path of a SentencePiece `.model`, or a repository of the
    Hugging Face hub as `hub:ORG/NAME` or, where no such path exists, `ORG/NAME`.

    `append_eod` puts the end-of-document token behind, `prepend_bos` the begin-of-sequence token before every document
    that has tokens; a document without tokens stays empty. Special tokens spelled out in a text are encoded as plain
    text, always. Raises `RecipeError` for an empty name.
    """

    name: str = "gpt2"
    append_eod: bool = True
    prepend_bos: bool = False

    def __post_init__(self) -> None:
        bare = self.name.removeprefix("hub:")
        if not bare or bare != bare.strip() or "\x00" in bare:
            raise RecipeError(
                f"tokenizer name must be a tiktoken encoding, a path or hub:ORG/NAME, got {self.name!r}. "
                "Set name: gpt2, for instance."
            )


class Packed(NamedTuple):
    """A batch ready for a `.bin`: `ids` of all documents back to back in the final dtype, `lengths` (int32) of every
    document in tokens with end-of-document and begin-of-sequence counted and 0 for an empty one, `special_hits` how
    often the text of a special token occurs in the documents."""

    ids: np.ndarray
    lengths: np.ndarray
    special_hits: int


class Tokenizer:
    """A loaded tokenizer; make one with `load_tokenizer`. Safe to use from many threads, and picklable (the other
    process loads it again).

    `name`: the spec's name. `kind`: "tiktoken", "huggingface" or "sentencepiece". `vocabulary`: number of tokens with
    added ones, Megatron's V. `eod`, `bos`: ids or None. `special_tokens`: their texts. `dtype`: of packed ids.
    `digest`: SHA-256 of the vocabulary (tiktoken: its ranks in `.tiktoken` form, whatever file they came from).
    `fast`: gigatoken does the work; if not, `note` says why. `versions`: of the packages that encode.
    """

    def __init__(self, spec: TokenizerSpec, vocabulary: Vocabulary) -> None:
        self.spec = spec
        self.name = spec.name
        self.kind = vocabulary.kind
        self.vocabulary = vocabulary.size
        self.eod = vocabulary.eod
        self.bos = vocabulary.bos
        self.special_tokens = vocabulary.special_tokens
        self.digest = vocabulary.digest
        self.dtype = choose_dtype(vocabulary.size)
        self._source = vocabulary
        self._around = self._ids_around()
        self._pool = _Pool(vocabulary.build_fast)
        self._special_pattern = _pattern(self.special_tokens)
        self._try_out()

    @functools.cached_property
    def note(self) -> str:
        """Why the reference does all of the work; empty where gigatoken does. Finding out takes 0.3 s, once."""
        return self._why_not_fast()

    @property
    def fast(self) -> bool:
        return not self.note

    @property
    def versions(self) -> dict[str, str]:
        return self._source.versions | ({"gigatoken": version("gigatoken")} if self.fast else {})

    @property
    def identity(self) -> dict[str, Any]:
        """What tells it from another tokenizer of the same spec, whose files were other ones."""
        return {"sha256": self.digest, "eod": self.eod, "bos": self.bos}

    def __reduce__(self) -> tuple[Callable[..., Tokenizer], tuple[TokenizerSpec]]:
        return load_tokenizer, (self.spec,)

    def encode(self, texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
        """Token ids of all texts back to back (uint32) and how many each text has (int64), without end-of-document and
        begin-of-sequence. Special tokens spelled out in a text are plain text.

        `texts` is an Arrow string array without nulls (`InputError` otherwise); any slice will do, nothing is copied.
        Raises `IntegrityError`, naming the document's index in `texts`, where gigatoken and the reference differ.
        """
        texts = _as_large_strings(texts)
        if not self.fast:
            return self._encode_by_reference(texts)
        try:
            ids, counts = self._pool.encode(texts)
        except BaseException as error:
            if not is_failure(error):
                raise
            raise IntegrityError(
                f"gigatoken fails on a batch of {len(texts)} documents with {self.name!r}: {_first_line(error)}. "
                "Report it to gigatoken; without gigatoken installed the reference does all of the work."
            ) from None
        self._check(texts, ids, counts)
        return ids, counts

    def pack(self, texts: pa.LargeStringArray) -> Packed:
        """Encode `texts` and put begin-of-sequence and end-of-document around every document that has tokens.

        No document is dropped: one without tokens has length 0. The ids are checked before they are narrowed; raises
        `IntegrityError` for an id that is not below `vocabulary`, or a document of 2^31 tokens or more.
        """
        texts = _as_large_strings(texts)
        ids, counts = self.encode(texts)
        self._check_range(ids)
        bos, eod = self._around
        lengths = np.where(counts > 0, counts + len(bos) + len(eod), 0)
        if len(lengths) and lengths.max() > MAX_SEQUENCE_TOKENS:
            raise IntegrityError(
                f"document {int(lengths.argmax())} of the batch has {int(lengths.max())} tokens, the .idx format "
                f"allows {MAX_SEQUENCE_TOKENS}. Cut the document before tokenising."
            )
        packed = _surround(ids, lengths[lengths > 0], bos, eod, self.dtype)
        return Packed(packed, lengths.astype(np.int32), self._count_specials(texts))

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of token ids, special tokens spelled out; bytes that are no UTF-8 become U+FFFD."""
        return self._source.decode([int(i) for i in ids])

    def _ids_around(self) -> tuple[list[int], list[int]]:
        bos = [self._required(self.bos, "prepend_bos", "a begin-of-sequence")] if self.spec.prepend_bos else []
        eod = [self._required(self.eod, "append_eod", "an end-of-document")] if self.spec.append_eod else []
        return bos, eod

    def _required(self, token: int | None, option: str, words: str) -> int:
        if token is None:
            raise TokenizerError(
                f"{option}: true needs {words} token, tokenizer {self.name!r} names none "
                f"(special tokens: {self.special_tokens[:8]}). Set {option}: false, or name the token in the "
                "tokenizer_config.json beside tokenizer.json."
            )
        if token >= self.vocabulary:
            raise TokenizerError(
                f"{self.name!r} names {words} token with id {token}, but the vocabulary has {self.vocabulary} entries: "
                "training would index past its embedding. Repair the ids in tokenizer.json."
            )
        return token

    def _try_out(self) -> None:
        """TokenizerError where it cannot encode the probes, or its special tokens are too long to be looked for."""
        longest = max(map(len, self.special_tokens), default=0)
        if longest > MAX_SPECIAL_CHARACTERS:
            raise TokenizerError(
                f"tokenizer {self.name!r} has a special token of {longest:,} characters, expected "
                f"{MAX_SPECIAL_CHARACTERS:,} at most. Correct its file."
            )
        failed = self._first_failure(PROBES)
        if failed is not None:
            raise TokenizerError(
                f"tokenizer {self.name!r} cannot encode {PROBES[failed[0]][:SHOWN_CHARACTERS]!r}: {failed[1]}. Correct "
                "its file, or take another tokenizer."
            )

    def _first_failure(self, texts: Sequence[str]) -> tuple[int, str] | None:
        """The first text on which the reference raises, and its error."""
        for number, text in enumerate(texts):
            try:
                list(self._source.encode([text]))
            except BaseException as error:
                if not is_failure(error):
                    raise
                return number, _first_line(error)
        return None

    def _by_reference(self, texts: list[str], numbers: Sequence[int] | np.ndarray) -> list[Any]:
        """The reference's ids of texts with these numbers in the batch; InputError names the one that it fails on."""
        try:
            return list(self._source.encode(texts))
        except BaseException as error:
            if not is_failure(error):
                raise
            number, told = self._first_failure(texts) or (0, _first_line(error))
            raise InputError(
                f"document {numbers[number]} of the batch, {texts[number][:SHOWN_CHARACTERS]!r}: tokenizer "
                f"{self.name!r} fails on it: {told}. Remove the document, or take another tokenizer"
            ) from None

    def _why_not_fast(self) -> str:
        """Empty where gigatoken gives the reference's ids for all probes."""
        probes = [*PROBES, *(f"a{text}b {text} " for text in self.special_tokens[:8])]
        try:
            found = self._pool.encode(_large_strings(probes))
        except BaseException as error:
            if not is_failure(error):
                raise
            return f"gigatoken does not support this vocabulary: {_first_line(error)}"
        wrong = _first_difference(found, self._source.encode(probes), range(len(probes)))
        return "" if wrong is None else f"gigatoken differs from {self.kind} on {probes[wrong][:SHOWN_CHARACTERS]!r}"

    def _encode_by_reference(self, texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
        pieces: list[np.ndarray] = []
        counts: list[int] = []
        for first in range(0, len(texts), REFERENCE_DOCUMENTS):
            batch = texts.slice(first, REFERENCE_DOCUMENTS).to_pylist()
            found = self._by_reference(batch, range(first, first + len(batch)))
            failed = [first + k for k, ids in enumerate(found) if ids is None]
            if failed:
                raise InputError(
                    f"document {failed[0]} of the batch: {self.kind} gives up on it with {self.name!r}, most often at "
                    "a million spaces in a row. Set whitespace: collapse in a rewrite stage, or lower "
                    "max_document_bytes"
                )
            counts.extend(map(len, found))
            pieces.extend(np.asarray(ids, np.uint32) for ids in found)
        return np.concatenate([np.empty(0, np.uint32), *pieces]), np.array(counts, np.int64)

    def _check(self, texts: pa.LargeStringArray, ids: np.ndarray, counts: np.ndarray) -> None:
        chosen = _sample(_offsets(texts))
        right = self._by_reference(texts.take(chosen).to_pylist(), chosen)
        wrong = _first_difference((ids, counts), right, chosen)
        if wrong is not None:
            raise IntegrityError(
                f"document {wrong} of the batch: gigatoken and the reference give different ids with {self.name!r} "
                f"({self.versions}). Report the document to gigatoken; without gigatoken installed the reference does "
                "all of the work."
            )

    def _check_range(self, ids: np.ndarray) -> None:
        if len(ids) and ids.max() >= self.vocabulary:
            raise IntegrityError(
                f"tokenizer {self.name!r} gave id {int(ids.max())}, expected ids below its vocabulary of "
                f"{self.vocabulary}. Its files do not belong together: load them anew."
            )

    def _count_specials(self, texts: pa.LargeStringArray) -> int:
        import pyarrow.compute as pc

        if not self._special_pattern:
            return 0
        return pc.sum(pc.count_substring_regex(texts, self._special_pattern)).as_py() or 0


class _Pool:
    """gigatoken objects, one per thread at work: a shared one does not scale (549 against 964 MB/s on two cores).

    A stack and not `threading.local`: it lends the warmest object, also to the threads of the next executor. An object
    that grew is not taken back. The process is measured, as the object does not tell; memory maps are left out.
    """

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build
        self._idle: deque[tuple[Any, int]] = deque()

    def encode(self, texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
        try:
            engine, baseline = self._idle.pop()
        except IndexError:
            engine, baseline = self._build(), _private_bytes()
        layout = engine.encode_batch(_as_awkward(texts), parallel=False).layout
        if _private_bytes() - baseline < MAX_CACHE_GROWTH_BYTES:
            self._idle.append((engine, baseline))
        return np.asarray(layout.content.data), np.diff(np.asarray(layout.offsets.data))


def _private_bytes() -> int:
    import psutil

    memory = psutil.Process().memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))


def _first_line(error: BaseException) -> str:
    """The first line of an error's text. Libraries in Rust add the place in their source behind it."""
    return str(error).partition("\n")[0] or type(error).__name__


_loading = threading.Lock()


def load_tokenizer(spec: TokenizerSpec | str) -> Tokenizer:
    """The tokenizer that `spec` (or just its name) asks for; loaded once per process, and again where its files have
    changed.

    `gpt2` and `r50k_base` need no network; other tiktoken encodings are read from `TIKTOKEN_CACHE_DIR` or downloaded by
    tiktoken. Raises `TokenizerError`, saying how to provide the file, where it cannot be found or read, or where it
    names no end-of-document (begin-of-sequence) token and the spec asks for one.
    """
    if isinstance(spec, str):
        spec = TokenizerSpec(name=spec)
    with _loading:
        return _load(spec, tuple(map(_stamp, vocabulary_files(spec.name))))


@functools.lru_cache(maxsize=8)
def _load(spec: TokenizerSpec, stamps: tuple[tuple[int, int], ...]) -> Tokenizer:
    return Tokenizer(spec, load_vocabulary(spec.name))


def _stamp(path: Path) -> tuple[int, int]:
    """What tells a file from another one that takes its place; zeros where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


# ---- arrays


def _large_strings(texts: Sequence[str]) -> pa.LargeStringArray:
    import pyarrow as pa

    return pa.array(texts, pa.large_string())


def _as_large_strings(texts: pa.Array | pa.ChunkedArray) -> pa.LargeStringArray:
    import pyarrow as pa

    texts = joined(texts)
    if not isinstance(texts, pa.Array) or texts.null_count:
        found = f"{texts.null_count} nulls" if isinstance(texts, pa.Array) else type(texts).__name__
        raise InputError(f"expected an Arrow array of strings without nulls, got {found}. Drop or fill them first.")
    return texts if pa.types.is_large_string(texts.type) else texts.cast(pa.large_string())


def _offsets(texts: pa.LargeStringArray) -> np.ndarray:
    buffer = texts.buffers()[1]
    if buffer is None or not len(texts):  # Arrow allows no offsets for no strings
        return np.zeros(1, np.int64)
    return np.frombuffer(buffer, np.int64, len(texts) + 1, texts.offset * 8)


def _as_awkward(texts: pa.LargeStringArray) -> Any:
    """The same buffers as gigatoken wants them; it refuses Arrow arrays."""
    from awkward import Array
    from awkward.contents import ListOffsetArray, NumpyArray
    from awkward.index import Index64

    buffer = texts.buffers()[2]
    data = np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)
    characters = NumpyArray(data, parameters={"__array__": "char"})
    return Array(ListOffsetArray(Index64(_offsets(texts)), characters, parameters={"__array__": "string"}))


def _sample(offsets: np.ndarray) -> np.ndarray:
    """One document in CHECK_EVERY that have text, at least one; where it starts depends on the text, not on chance."""
    candidates = np.flatnonzero(np.diff(offsets))
    start = int(offsets[-1] - offsets[0]) % max(1, min(len(candidates), CHECK_EVERY))
    return candidates[start::CHECK_EVERY]


def _first_difference(
    found: tuple[np.ndarray, np.ndarray], expected: Iterable[Any], indices: Iterable[int]
) -> int | None:
    """The first of `indices` whose document has other ids in `found` (flat ids, counts) than in `expected`, where that
    has any."""
    ids, counts = found
    ends = np.cumsum(counts)
    for index, right in zip(indices, expected, strict=True):
        if right is not None and not np.array_equal(ids[ends[index] - counts[index] : ends[index]], right):
            return int(index)
    return None


def _surround(ids: np.ndarray, lengths: np.ndarray, bos: list[int], eod: list[int], dtype: np.dtype) -> np.ndarray:
    """`ids` in `dtype` with `bos` before and `eod` behind each document; `lengths` count them."""
    if not bos and not eod:
        return ids.astype(dtype)
    ends = np.cumsum(lengths)
    packed = np.empty(ends[-1] if len(ends) else 0, dtype)
    inside = np.ones(len(packed), bool)
    for at, token in ((ends - lengths, bos), (ends - 1, eod)):
        if token:
            inside[at] = False
            packed[at] = token[0]
    packed[inside] = ids
    return packed


def _pattern(texts: Sequence[str]) -> str:
    """All texts as one regular expression, longer ones first; RE2 counts it at memory speed."""
    return "|".join(re.escape(text) for text in sorted(texts, key=lambda text: (-len(text), text)))
