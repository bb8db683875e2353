# SPDX-License-Identifier: Apache-2.0
"""tiktoken, Hugging Face and SentencePiece tokenizers with one interface.

Each vocabulary has two implementations. The *reference* (tiktoken, `tokenizers`, `sentencepiece`) defines the correct
ids. gigatoken encodes 10 to 20 times as fast. gigatoken is used if three conditions hold: it can load the vocabulary,
it agrees with the reference on the probes, and its version was compared with the reference's version on all characters.
The reference encodes texts with a character on which the two differ (`unicode_differences`). The reference encodes one
document in a thousand of every batch again, which costs 1 to 3 %. A difference fails the run.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from curation.base.arrays import as_large_strings
from curation.base.errors import InputError, IntegrityError, RecipeError, TokenizerError
from curation.base.system.html_table import Shown
from curation.base.system.packages import package_version
from curation.base.system.panics import PanicError, without_panics
from curation.tokens.cut_points import PIECE_CHARACTERS, CutPoints
from curation.tokens.encoder_pool import EncoderPool, text_offsets
from curation.tokens.megatron import MAX_SEQUENCE_TOKENS, choose_dtype
from curation.tokens.probes import PROBES, SHOWN_CHARACTERS, ProbeResults, compare, documents_like
from curation.tokens.unicode_differences import (
    SWEEP,
    Characters,
    SweepOutcome,
    characters_of,
    compared_versions,
    documents_with,
    find_entry,
)
from curation.tokens.vocabularies import Vocabulary, is_failure, load_vocabulary, vocabulary_files

if TYPE_CHECKING:
    import pyarrow as pa

    from curation.tokens.byte_pairs import BytePairs
    from curation.tokens.flat_tables import FlatTables

CHECK_EVERY = 1000  # the reference checks one document in this many

# Text per call of the reference: `tokenizers` needs up to 250 bytes of memory per byte
REFERENCE_DOCUMENTS, REFERENCE_CHARACTERS = 256, 1 << 17

REVISION = 2  # 2: special tokens are plain text for every model, and the reference encodes some pieces
# Characters with all bytes that UTF-8 has: a special token of a byte-level BPE may be one of them
ALL_BYTES = "".join(
    map(chr, (*range(256), *range(256, 0x800, 64), *range(0x800, 0xD000, 0x1000), 0xD000, 0xE000, 0xF000))
)
ALL_BYTES += "".join(map(chr, range(0x10000, 0x110000, 0x40000))) + chr(0x10FFFF)
MAX_SPECIAL_CHARACTERS = 10_000  # RE2 refuses patterns of some megabytes


class TokenizerSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tokenizer of a run, and the special tokens that it adds to each document.

    name         a tiktoken encoding (`gpt2`, `cl100k_base`, ...), the path of a Hugging Face `tokenizer.json`, of a
                 SentencePiece `.model`, of another file of `docs/tokenizer_files.md` or of a folder with one of them,
                 or a repository of the Hugging Face hub:
                 `hub:ORG/NAME`, or `ORG/NAME` where no such path exists
    append_eod   put the end-of-document token after every document that has tokens; of an encoder such as BERT, [SEP]
    prepend_bos  put the begin-of-sequence token before every document that has tokens; of an encoder, [CLS]

    A document without tokens stays empty. Special tokens spelled out in a text are always encoded as plain text.
    RecipeError: a name that is empty or has white space at an end.
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


class TokenBatch(NamedTuple):
    """A batch ready for a `.bin`.

    ids       shape (sum of lengths,), the tokenizer's `dtype`: the ids of all documents back to back
    lengths   int32, shape (documents,): tokens of each document with end-of-document and begin-of-sequence, 0 for
              an empty document
    """

    ids: np.ndarray
    lengths: np.ndarray


class Tokenizer(Shown):
    """A loaded tokenizer, made by `load_tokenizer`. Thread-safe, and picklable: another process loads it again.

    name            `TokenizerSpec.name`
    kind            "tiktoken", "huggingface" or "sentencepiece"
    vocabulary      number of tokens with added ones, Megatron's V
    eod, bos, pad   ids of the end-of-document, begin-of-sequence and padding token, or None
    special_tokens  texts of the special tokens
    dtype           dtype of packed ids: uint16 for a `vocabulary` below 65500, else int32 (`choose_dtype`)
    digest          SHA-256 of the vocabulary in hexadecimal. tiktoken: of the ranks in `.tiktoken` form, whatever file
                    they came from
    special_ids     the ids before each document and the ids after it, by the spec
    fast            whether gigatoken encodes
    device_note     reason why a GPU cannot encode, "" if it can
    note            reason why the reference encodes, "" where gigatoken does
    versions        package name -> version of the packages that encode

    TokenizerError: `append_eod` or `prepend_bos` without such a token, a text among the probes that the tokenizer
    cannot encode, or a special token of more than 10,000 characters.
    """

    def __init__(self, spec: TokenizerSpec, vocabulary: Vocabulary) -> None:
        self.spec = spec
        self.name = spec.name
        self.kind = vocabulary.kind
        self.vocabulary = vocabulary.size
        self.eod = vocabulary.eod
        self.bos = vocabulary.bos
        self.pad = vocabulary.pad
        self.special_tokens = vocabulary.special_tokens
        self.digest = vocabulary.digest
        self.dtype = choose_dtype(vocabulary.size)
        self._source = vocabulary
        self.special_ids = self._find_special_ids()
        self._pool = EncoderPool(vocabulary.build_fast)
        self._special_pattern = _pattern(self.special_tokens)
        self._check_probes()

    def _facts(self) -> dict[str, object]:
        special = {"eod": self.eod, "bos": self.bos}
        known = {name: str(token) for name, token in special.items() if token is not None}
        return {"name": self.name, "kind": self.kind, "vocabulary": self.vocabulary, **known, "dtype": self.dtype}

    @functools.cached_property
    def note(self) -> str:
        """Reason why the reference encodes, "" where gigatoken does. The first access takes 0.3 s."""
        return self._comparison.note or self._missing_sweep()

    @property
    def fast(self) -> bool:
        """Whether gigatoken encodes."""
        return not self.note

    @functools.cached_property
    def _sweep(self) -> SweepOutcome | None:
        """The stored comparison of gigatoken with the reference on all characters."""
        return find_entry(_named(["gigatoken"]), _named(self._source.versions), self._split)

    @functools.cached_property
    def _split(self) -> str:
        return self._source.split()

    @functools.cached_property
    def _differing(self) -> Characters | None:
        """The characters on which gigatoken and the reference differ, None without any."""
        return characters_of(self._sweep) if self._sweep and self._sweep.characters else None

    @property
    def device_note(self) -> str:
        """Reason why a GPU does not encode, "" where it does."""
        from curation.tokens.flat_tables import flat_obstacle

        return flat_obstacle(self.byte_pairs)

    @functools.cached_property
    def flat_tables(self) -> FlatTables:
        """Tables for a GPU, of a tokenizer without a `device_note`. The first access takes a second."""
        from curation.tokens.flat_tables import make_flat_tables

        assert self.byte_pairs is not None
        return make_flat_tables(self.byte_pairs)

    @functools.cached_property
    def byte_pairs(self) -> BytePairs | None:
        """The vocabulary of a byte-level BPE; None for another tokenizer."""
        return self._source.byte_pairs()

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the packages that encode, by name."""
        return self._source.versions | ({"gigatoken": package_version("gigatoken")} if self.fast else {})

    @property
    def identity(self) -> dict[str, Any]:
        """SHA-256 and special ids, which differ if the files of a spec differ. The revision is raised when a new
        version of this package gives different ids for the same file."""
        pad = {} if self.pad is None else {"pad": self.pad}
        revision = {} if self.kind == "tiktoken" else {"revision": REVISION}
        return {"sha256": self.digest, "eod": self.eod, "bos": self.bos} | pad | revision

    def __reduce__(self) -> tuple[Callable[..., Tokenizer], tuple[TokenizerSpec]]:
        return load_tokenizer, (self.spec,)

    def encode(self, texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
        """Return (ids, counts) of the texts, without end-of-document and begin-of-sequence tokens.

        texts   Arrow string array without nulls, or a slice of one, which is not copied
        ids     uint32, shape (sum of counts,): the ids of all texts back to back
        counts  int64, shape (texts,): tokens of each text

        Special tokens spelled out in a text are plain text. InputError: nulls, another type, or a text that the
        reference cannot encode. IntegrityError: gigatoken fails, or differs from the reference; the message names the
        text's index; or an id is not below `vocabulary`.
        """
        ids, counts, _ = self._encode(as_large_strings(texts))
        return ids, counts

    def _encode(self, texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the ids and counts of `encode`, and the positions of special ids that no other ids can replace."""
        if not self.fast:
            ids, counts = self._encode_with_reference(texts, range(len(texts)))
            return ids, counts, self.special_positions(ids)
        ids, counts = self._encode_fast(texts)
        positions = self.special_positions(ids)
        if len(positions):
            ids, counts = self._replace_ids(texts, ids, counts, _documents_at(positions, counts))
            positions = self.special_positions(ids)
        self._check_sample(texts, ids, counts)
        return ids, counts, positions

    def _encode_fast(self, texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
        try:
            with without_panics():
                ids, counts = self._pool.encode(texts)
        except BaseException as error:
            if not is_failure(error):
                raise
            raise IntegrityError(
                f"gigatoken fails on a batch of {len(texts)} documents with {self.name!r}: {_first_line(error)}. "
                "Report it to gigatoken. To encode only with the reference, uninstall gigatoken."
            ) from None
        return self._replace_ids(texts, ids, counts, self._for_reference(texts))

    def pack(self, texts: pa.LargeStringArray) -> TokenBatch:
        """Encode `texts` and add begin-of-sequence and end-of-document tokens to every document that has tokens.

        No document is dropped: a document without tokens, or with a `special_piece`, has length 0. Ids are checked
        before they are narrowed to `dtype`. IntegrityError: a document of 2^31 tokens or more. Further errors: see
        `encode`.
        """
        ids, counts, positions = self._encode(as_large_strings(texts))
        if len(positions):
            is_kept = np.ones(len(counts), np.bool_)
            is_kept[_documents_at(positions, counts)] = False
            ids, counts = ids[np.repeat(is_kept, counts)], np.where(is_kept, counts, 0)
        bos, eod = self.special_ids
        lengths = np.where(counts > 0, counts + len(bos) + len(eod), 0)
        if len(lengths) and lengths.max() > MAX_SEQUENCE_TOKENS:
            raise IntegrityError(
                f"document {int(lengths.argmax())} of the batch has {int(lengths.max())} tokens, the .idx format "
                f"allows {MAX_SEQUENCE_TOKENS}. Cut the document before tokenising."
            )
        ids = _add_special_ids(ids, lengths[lengths > 0], bos, eod, self.dtype)
        return TokenBatch(ids, lengths.astype(np.int32))

    def special_piece(self, text: str) -> str:
        """Return a special token that would be among the ids of a text, "" if there is none.

        No text should have such a token: `load_tokenizer` refuses a tokenizer that cannot encode the token's text by
        other pieces."""
        ids = self._call_reference([text], [0])[0]
        positions = np.zeros(0, np.int64) if ids is None else self.special_positions(ids)
        return self.piece(int(ids[positions[0]])) if len(positions) else ""

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Return the text of token ids, special tokens spelled out. Bytes that are not UTF-8 become U+FFFD."""
        try:
            return self._source.decode([int(i) for i in ids])
        except PanicError as error:
            raise TokenizerError(
                f"tokenizer {self.name!r} cannot decode ids: {error}. Correct its file, or use another tokenizer"
            ) from None

    def piece(self, token: int) -> str:
        """Return the text of a token. For special tokens, unknown text and the bytes of SentencePiece, this is a name
        such as `<0x0A>`. Bytes that are not UTF-8 become U+FFFD."""
        name = self._source.piece(token)
        is_named = name is not None and (name in ("<unk>", "[UNK]") or name.startswith("<0x"))
        return str(name) if is_named or name in self.special_tokens else self.decode([token])

    def named(self, token: int) -> str:
        """Return the name and the id of a special token, as in "</s> 2"."""
        return f"{self._source.piece(token) or self.decode([token])} {token}"

    def _find_special_ids(self) -> tuple[list[int], list[int]]:
        bos = [self._require_token(self.bos, "prepend_bos", "a begin-of-sequence")] if self.spec.prepend_bos else []
        eod = [self._require_token(self.eod, "append_eod", "an end-of-document")] if self.spec.append_eod else []
        return bos, eod

    def _require_token(self, token: int | None, option: str, label: str) -> int:
        if token is None:
            raise TokenizerError(
                f"{option}: true needs {label} token, tokenizer {self.name!r} names none "
                f"(special tokens: {self.special_tokens[:8]}). Set {option}: false, or name the token in the "
                "tokenizer_config.json next to tokenizer.json."
            )
        if token >= self.vocabulary:
            raise TokenizerError(
                f"tokenizer {self.name!r} has {label} token with id {token}, expected an id below its vocabulary of "
                f"{self.vocabulary}: training would index past its embedding. Repair the ids in tokenizer.json."
            )
        return token

    def _check_probes(self) -> None:
        """Raise TokenizerError if the reference cannot encode the probes, or a special token is too long for a
        pattern."""
        longest = max(map(len, self.special_tokens), default=0)
        if longest > MAX_SPECIAL_CHARACTERS:
            raise TokenizerError(
                f"tokenizer {self.name!r} has a special token of {longest:,} characters, expected at most "
                f"{MAX_SPECIAL_CHARACTERS:,}. Correct its file."
            )
        failure = self._first_failure(PROBES)
        if failure is not None:
            number, reason = failure
            raise TokenizerError(
                f"tokenizer {self.name!r} cannot encode {PROBES[number][:SHOWN_CHARACTERS]!r}: {reason}. Correct its "
                "file, or use another tokenizer."
            )
        self._check_special_texts()

    def _check_special_texts(self) -> None:
        """Raise TokenizerError if the text of a special token gives the token's id, and the model has no other pieces
        for the text."""
        around = [context for token in self.special_tokens for context in (token, f"a{token}b {token}\n{token}")]
        for text in [*around, ALL_BYTES] if self._source.special_ids else ():
            if self._first_failure([text]) is None and (piece := self.special_piece(text)):
                raise TokenizerError(
                    f"tokenizer {self.name!r} has no pieces for the text of its special token {piece!r} except the "
                    "token, so documents with this text would be cut there. Remove the token from the special tokens "
                    "of its file, or use another tokenizer."
                )

    def _first_failure(self, texts: Sequence[str]) -> tuple[int, str] | None:
        """Return (number, error) of the first text on which the reference raises, or None."""
        for number, text in enumerate(texts):
            try:
                self._encode_pieces([text])
            except BaseException as error:
                if not is_failure(error):
                    raise
                return number, _first_line(error)
        return None

    def _call_reference(self, texts: list[str], numbers: Sequence[int] | np.ndarray) -> list[Any]:
        """Return the reference's ids of each text, without special ids where other pieces can replace them. InputError
        names the failing text by its number in the batch."""
        try:
            encoded = self._encode_pieces(texts)
        except BaseException as error:
            if not is_failure(error):
                raise
            number, reason = self._first_failure(texts) or (0, _first_line(error))
            raise InputError(
                f"document {numbers[number]} of the batch, {texts[number][:SHOWN_CHARACTERS]!r}: tokenizer "
                f"{self.name!r} fails on it: {reason}. Remove the document, or use another tokenizer"
            ) from None
        return [self._with_plain_ids(ids) for ids in encoded]

    def _encode_pieces(self, texts: Sequence[str]) -> list[np.ndarray | None]:
        """Return the reference's ids of each text. Long texts are encoded in pieces if that gives the same ids."""
        ids_by_text: list[list[Any]] = [[] for _ in texts]
        for batch in _batches(self._pieces(texts)):
            encoded = self._source.encode([piece for _, piece in batch])
            for (number, _), ids in zip(batch, encoded, strict=True):
                ids_by_text[number].append(ids if ids is None else np.asarray(ids, np.uint32))
        return [None if any(ids is None for ids in parts) else _joined(parts) for parts in ids_by_text]

    def _pieces(self, texts: Sequence[str]) -> Iterator[tuple[int, str]]:
        """Yield the pieces of all texts in order, each as (number of the text, piece)."""
        for number, text in enumerate(texts):
            points = self._cut_points if len(text) > PIECE_CHARACTERS else None
            for piece in points.pieces(text) if points else [text]:
                yield number, piece

    @functools.cached_property
    def _cut_points(self) -> CutPoints | None:
        return self._source.cut_points()

    @property
    def memory_note(self) -> str:
        """A sentence about the memory that a long text takes if the reference encodes it whole; "" if texts are cut."""
        if not self._source.whole_bytes or self._cut_points:
            return ""
        return (
            f"tokenizer {self.name} encodes each document whole: the longest one needs {self._source.whole_bytes} "
            "times its bytes"
        )

    def _with_plain_ids(self, ids: Any) -> np.ndarray | None:
        """Replace special ids by the ids of other pieces with the same text, if the vocabulary has them."""
        if ids is None:
            return None
        ids = np.asarray(ids, np.uint32)
        positions = self.special_positions(ids)
        if not len(positions):
            return ids
        parts: list[np.ndarray] = np.split(ids, np.stack([positions, positions + 1], axis=1).reshape(-1))
        for number in range(1, len(parts), 2):
            parts[number] = np.array(self._source.plain_ids(int(parts[number][0])) or parts[number], np.uint32)
        return np.concatenate(parts)

    def special_positions(self, ids: np.ndarray) -> np.ndarray:
        """Return the positions of ids that no text may have. IntegrityError: an id that is not below `vocabulary`."""
        first, count, is_special = self._ordinary
        largest = int(ids.max()) if len(ids) else -1
        if largest < first + count and (not first or not len(ids) or int(ids.min()) >= first):
            return np.zeros(0, np.int64)
        if largest >= self.vocabulary:
            raise IntegrityError(
                f"tokenizer {self.name!r} gave id {largest}, expected ids below its vocabulary of {self.vocabulary}. "
                "Its files do not belong together: download them again."
            )
        others = np.flatnonzero((ids < first) | (ids >= first + count))
        return others[is_special[ids[others]]]

    @functools.cached_property
    def is_special(self) -> np.ndarray:
        """bool, shape (vocabulary,): whether no text may have the id."""
        special = np.zeros(self.vocabulary, np.bool_)
        special[[number for number in self._source.special_ids if number < self.vocabulary]] = True
        return special

    @functools.cached_property
    def _ordinary(self) -> tuple[int, int, np.ndarray]:
        """The longest range of ids without special ids, as (first, count); and `is_special`."""
        ends = np.concatenate([[-1], np.flatnonzero(self.is_special), [self.vocabulary]])
        longest = int(np.diff(ends).argmax())
        return int(ends[longest]) + 1, int(ends[longest + 1] - ends[longest]) - 1, self.is_special

    @functools.cached_property
    def _comparison(self) -> ProbeResults:
        """The comparison of gigatoken with the reference, on the probes and on all pieces that are no plain text."""
        source = self._source
        try:
            with without_panics():
                results = compare(self._encode_probes, source.encode, source.pieces(), source.differing, self.kind)
                documents_like(_large_strings([""]), results.pattern)  # RE2 refuses a pattern of some megabytes
                return results
        except BaseException as error:
            if not is_failure(error):
                raise
            return ProbeResults(f"gigatoken does not support this vocabulary: {_first_line(error)}")

    def _encode_probes(self, texts: Sequence[str]) -> list[np.ndarray]:
        ids, counts = self._pool.encode(_large_strings(texts))
        return np.split(ids, np.cumsum(counts))[: len(texts)]

    def _missing_sweep(self) -> str:
        """Return "" if gigatoken and the reference were compared on all characters, else the reason and the remedy."""
        if not self._split or self._sweep:
            return ""
        known = compared_versions(self._split)
        install = f"Install compared versions ({', '.join(known)}), or compare" if known else "Compare"
        return (
            f"{_named(['gigatoken'])} and {_named(self._source.versions)} were never compared on all characters with "
            f"this split, so only {self.kind} encodes. {install} yours once: {SWEEP} {self.name}"
        )

    def _for_reference(self, texts: pa.LargeStringArray) -> np.ndarray:
        """Return the indexes of the texts with a character or a piece on which gigatoken differs."""
        indexes = [documents_with(texts, self._differing)] if self._differing else []
        indexes += [documents_like(texts, self._comparison.pattern)] if self._comparison.pattern else []
        return np.unique(np.concatenate(indexes)) if indexes else np.zeros(0, np.int64)

    def _replace_ids(
        self, texts: pa.LargeStringArray, ids: np.ndarray, counts: np.ndarray, chosen: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Replace the ids of the chosen texts by the reference's ids."""
        if not len(chosen):
            return ids, counts
        new_ids, sizes = self._encode_with_reference(texts.take(chosen), chosen)
        ends = np.cumsum(counts)
        cuts = np.stack([ends[chosen] - counts[chosen], ends[chosen]], axis=1).reshape(-1)
        parts: list[np.ndarray] = np.split(ids, cuts)
        parts[1::2] = np.split(new_ids, np.cumsum(sizes)[:-1])
        counts = counts.copy()
        counts[chosen] = sizes
        return np.concatenate(parts), counts

    def _encode_with_reference(
        self, texts: pa.LargeStringArray, numbers: Sequence[int] | np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and counts of `encode`, made by the reference. Errors name a text by its number."""
        arrays: list[np.ndarray] = []
        counts: list[int] = []
        for first in range(0, len(texts), REFERENCE_DOCUMENTS):
            batch = texts.slice(first, REFERENCE_DOCUMENTS).to_pylist()
            encoded = self._call_reference(batch, numbers[first : first + len(batch)])
            failed = [numbers[first + k] for k, ids in enumerate(encoded) if ids is None]
            if failed:
                raise InputError(
                    f"document {failed[0]} of the batch: {self.kind} fails on it with {self.name!r}, most often for "
                    "a million spaces in a row. Set whitespace: collapse in a rewrite stage, or lower "
                    "max_document_bytes"
                )
            counts.extend(map(len, encoded))
            arrays.extend(encoded)
        return np.concatenate([np.empty(0, np.uint32), *arrays]), np.array(counts, np.int64)

    def check_ids(self, texts: pa.LargeStringArray, numbers: np.ndarray, ids: list[np.ndarray]) -> None:
        """Raise IntegrityError if ids from a GPU, without special ids, are not those of the reference. The error names
        the text by its number."""
        for number, given, expected in zip(numbers, ids, self._call_reference(texts.to_pylist(), numbers), strict=True):
            if expected is not None and not np.array_equal(given, expected):
                raise IntegrityError(
                    f"document {number} of the batch: the GPU and the reference give different ids with {self.name!r} "
                    f"({self.versions}). Report the document. To tokenise without the GPU, set --engine cpu."
                )

    def _check_sample(self, texts: pa.LargeStringArray, ids: np.ndarray, counts: np.ndarray) -> None:
        chosen = sample_of(text_offsets(texts))
        expected = self._call_reference(texts.take(chosen).to_pylist(), chosen)
        number = _first_difference((ids, counts), expected, chosen)
        if number is not None:
            raise IntegrityError(
                f"document {number} of the batch: gigatoken and the reference give different ids with {self.name!r} "
                f"({self.versions}). Report the document to gigatoken. To encode only with the reference, run 'pip "
                "uninstall gigatoken' and the command again with a new --output: ids already written may be wrong."
            )

    def count_specials(self, texts: pa.LargeStringArray) -> int:
        """Return the number of occurrences of the text of a special token."""
        import pyarrow.compute as pc

        if not self._special_pattern:
            return 0
        return pc.sum(pc.count_substring_regex(texts, self._special_pattern)).as_py() or 0


def _named(packages: Iterable[str]) -> str:
    """Return names and versions of packages, as in "tiktoken 0.14.0"."""
    return ", ".join(f"{name} {package_version(name)}" for name in packages)


def _first_line(error: BaseException) -> str:
    """Return the first line of an error. Libraries in Rust add a location in their source on the next lines."""
    return str(error).partition("\n")[0] or type(error).__name__


_loading = threading.Lock()


def load_tokenizer(spec: TokenizerSpec | str) -> Tokenizer:
    """Return the tokenizer of a spec, or of a name with the spec's defaults.

    A process loads it once, and again when its files have changed. `gpt2` and `r50k_base` need no network. tiktoken
    reads other encodings from `TIKTOKEN_CACHE_DIR`, or downloads them.

        >>> import curation
        >>> curation.load_tokenizer("gpt2").decode([15496, 995])
        'Hello world'

    TokenizerError: a file that cannot be found or read, with a hint how to provide it; the spec asks for an
    end-of-document or begin-of-sequence token that the tokenizer does not name; a probe that it cannot encode.
    """
    if isinstance(spec, str):
        spec = TokenizerSpec(name=spec)
    with _loading:
        return _load(spec, tuple(map(_stamp, vocabulary_files(spec.name))))


@functools.lru_cache(maxsize=8)
def _load(spec: TokenizerSpec, stamps: tuple[tuple[int, int], ...]) -> Tokenizer:
    return Tokenizer(spec, load_vocabulary(spec.name))


def _stamp(path: Path) -> tuple[int, int]:
    """Return modification time and size, which change when the file is replaced; (0, 0) if there is no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


# ---- arrays


def _large_strings(texts: Sequence[str]) -> pa.LargeStringArray:
    import pyarrow as pa

    return pa.array(texts, pa.large_string())


def sample_of(offsets: np.ndarray) -> np.ndarray:
    """Return the indexes of one in CHECK_EVERY documents with text, at least one. The first index depends only on the
    text."""
    candidates = np.flatnonzero(np.diff(offsets))
    start = int(offsets[-1] - offsets[0]) % max(1, min(len(candidates), CHECK_EVERY))
    return candidates[start::CHECK_EVERY]


def _first_difference(
    actual: tuple[np.ndarray, np.ndarray], expected: Iterable[Any], indices: Iterable[int]
) -> int | None:
    """Return the first of `indices` whose ids in `actual` (flat ids, counts) differ from `expected`. In `expected`,
    None counts as equal."""
    ids, counts = actual
    ends = np.cumsum(counts)
    for index, reference in zip(indices, expected, strict=True):
        if reference is not None and not np.array_equal(ids[ends[index] - counts[index] : ends[index]], reference):
            return int(index)
    return None


def _batches(pieces: Iterable[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    """Yield pieces in lists for one call of the reference."""
    batch: list[tuple[int, str]] = []
    size = 0
    for number, piece in pieces:
        if batch and (len(batch) == REFERENCE_DOCUMENTS or size + len(piece) > REFERENCE_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append((number, piece))
        size += len(piece)
    if batch:
        yield batch


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _documents_at(positions: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the indexes of the documents with ids at these positions."""
    return np.unique(np.searchsorted(np.cumsum(counts), positions, side="right"))


def _add_special_ids(
    ids: np.ndarray, lengths: np.ndarray, bos: list[int], eod: list[int], dtype: np.dtype
) -> np.ndarray:
    """Return `ids` in `dtype` with `bos` before and `eod` after each document. `lengths` include both."""
    if not bos and not eod:
        return ids.astype(dtype)
    ends = np.cumsum(lengths)
    packed = np.empty(ends[-1] if len(ends) else 0, dtype)
    inside = np.ones(len(packed), bool)
    for positions, token in ((ends - lengths, bos), (ends - 1, eod)):
        if token:
            inside[positions] = False
            packed[positions] = token[0]
    packed[inside] = ids
    return packed


def _pattern(texts: Sequence[str]) -> str:
    """Return all texts as one regular expression, longer ones first. RE2 counts matches at memory speed."""
    return "|".join(re.escape(text) for text in sorted(texts, key=lambda text: (-len(text), text)))
