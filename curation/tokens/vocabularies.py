# SPDX-License-Identifier: Apache-2.0
"""Load vocabularies: tiktoken encodings, Hugging Face `tokenizer.json`, SentencePiece `.model`, and rank files.

A loader returns the reference's `encode` and `decode`, and a function that builds a gigatoken object of the same
vocabulary. The reference and gigatoken both encode special tokens spelled out in a text as plain text.
"""

from __future__ import annotations

import hashlib
import json
import os
from binascii import a2b_base64
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from curation.base.errors import TokenizerError, near_or_nothing
from curation.base.system.os_errors import PASSING, explain, is_of_system
from curation.base.system.packages import package_version
from curation.base.system.panics import without_panics
from curation.base.system.path_advice import advice
from curation.base.system.terminal import print_once
from curation.models.tokenizer_files import parse_tokenizer
from curation.tokens.added_tokens import (
    json_for_gigatoken,
    plain_ids,
    plain_tokens,
    special_texts,
    steps_of,
    texts_to_rename,
    unknown_token,
    with_renamed_tokens,
    without_merges,
)
from curation.tokens.byte_pairs import BytePairs, huggingface_pairs, tiktoken_pairs
from curation.tokens.cut_points import CutPoints, points_of_json, points_of_sentencepiece
from curation.tokens.rank_files import (
    GPT2,
    MERGES,
    VOCAB,
    Ranks,
    is_pair,
    is_rank_file,
    is_tekken,
    pair_of,
    rank_lines,
    read_ranks,
    read_tekken,
    tokenizer_json_of_pair,
)
from curation.tokens.unicode_differences import split_of

Kind = Literal["tiktoken", "huggingface", "sentencepiece"]

# gigatoken's split rules by encoding; rank files do not contain them. p50k is missing: gigatoken refuses the gap in its
# ranks.
GIGATOKEN_SCHEMES = {
    "gpt2": "gpt2",
    "r50k_base": "gpt2",
    "cl100k_base": "gpt4",
    "o200k_base": "o200k",
    "o200k_harmony": "o200k",
}
GPT2_NAMES = ("gpt2", "r50k_base")  # the same ranks, in two formats of files
GPT2_FILE = Path(__file__).with_name("gpt2.tiktoken")

CONFIG_FILE = "tokenizer_config.json"  # next to a tokenizer.json
FILES = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json")  # of a folder; the first one is read
SUFFIXES = (".json", ".model", ".tiktoken", ".txt")
EOD_TEXTS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]")
PAD_TEXTS = ("<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>")
BOS_TEXTS = ("<|startoftext|>", "<|begin_of_text|>", "<s>", "<bos>", "[BOS]")
CLS_TEXT, SEP_TEXT = "[CLS]", "[SEP]"  # begin and end of the input of an encoder such as BERT


PRINTABLE = "".join(map(chr, range(32, 127)))
PROBE_CHARACTERS = 300
PROBED_PATTERNS = 100
SHOWN_PATTERN = 40
MAX_GROWTH = 100  # factor. NFKD grows most of the usual normalisers: 18 letters of U+FDFA


# Measured per byte of a text of one-byte tokens (docs/scale.md#tokenizers-and-long-documents)
WHOLE_BYTES = {"huggingface": 250, "sentencepiece": 100}

# Fields and types of pieces in sentencepiece_model.proto.
PIECES, TEXT, TYPE = 1, 1, 3
NORMAL, USER_DEFINED, UNUSED = 1, 4, 5
MERGED_TYPES = NORMAL, USER_DEFINED, UNUSED


class Vocabulary(NamedTuple):
    """A loaded vocabulary: identity, special ids, and both ways to encode."""

    kind: Kind
    size: int
    eod: int | None
    bos: int | None
    special_tokens: list[str]
    digest: str
    versions: dict[str, str]
    encode: Callable[[list[str]], Iterable[Any]]  # reference: ids of each text, None for a text it cannot encode
    decode: Callable[[list[int]], str]
    build_fast: Callable[[], Any]  # a new gigatoken object; raises for an unsupported vocabulary
    byte_pairs: Callable[[], BytePairs | None] = lambda: None  # for a GPU; None if the vocabulary is no byte-level BPE
    piece: Callable[[int], str | None] = lambda id_: None  # name of a token in the vocabulary; None if it has none
    pad: int | None = None
    split: Callable[[], str] = lambda: (
        ""
    )  # how properties of characters cut a text, as `unicode_differences.SweepOutcome`
    special_ids: Collection[int] = ()  # ids that no text may have
    plain_ids: Callable[[int], list[int]] = lambda id_: []  # ids to replace such an id; [] if none
    pieces: Callable[[], Sequence[str]] = tuple  # pieces that gigatoken may not find as the reference does
    differing: Collection[str] = ()  # the reference encodes texts with these pieces; gigatoken does not know them
    cut_points: Callable[[], CutPoints | None] = lambda: None  # points at which a text can be cut for the reference
    whole_bytes: int = 0  # memory of the reference per byte of an uncut text; 0: as little as other steps


def is_failure(error: BaseException) -> bool:
    """Return whether an error comes from a tokenizer's library, not from the process (memory, interrupt) or the system.

    `tokenizers` raises the class Exception itself.
    """
    return isinstance(error, Exception) and not is_of_system(error)


def load_vocabulary(name: str) -> Vocabulary:
    """Return the vocabulary of `TokenizerSpec.name`. TokenizerError: an unknown name, or a file that cannot be read.
    OSError: the disk is full on which a library stores its downloads, or another error of `PASSING`."""
    try:
        return _load(name)
    except OSError as error:
        if error.errno in PASSING:
            raise
        raise TokenizerError(f"tokenizer {name}: {explain(error)}") from None


def _load(name: str) -> Vocabulary:
    if name.startswith("hub:"):
        return _load_from_hub(name.removeprefix("hub:"))
    names = _tiktoken_names()
    if name in names:
        return _load_tiktoken(name)
    path = _local_file(name)
    if path.is_file():
        return _load_file(path)
    if name.count("/") == 1 and not name.startswith((".", "/", "~")) and path.suffix not in SUFFIXES:
        return _load_from_hub(name)
    hint = near_or_nothing(name, names) or ". Correct tokenizer.name."
    if os.sep in name or name.endswith(SUFFIXES):
        hint = advice(name) or hint
    raise TokenizerError(
        f"expected a tiktoken encoding ({', '.join(sorted(names))}), an existing tokenizer.json, folder or .model, or "
        f"hub:ORG/NAME; got {name!r}, which is none of them{hint}"
    )


def vocabulary_files(name: str) -> list[Path]:
    """Return the files that `load_vocabulary` reads for a path; all but the first may be missing. The list is empty for
    the names of tiktoken and of the hub."""
    if name.startswith("hub:") or name in _tiktoken_names() or not (path := _local_file(name)).is_file():
        return []
    pair = pair_of(path) if path.name.endswith((VOCAB, MERGES)) else ()
    return list(dict.fromkeys([path, *pair, path.with_name(CONFIG_FILE)]))


def read_tokenizer_json(path: Path, config_path: Path | None = None) -> bytes:
    """Return the bytes of a tokenizer.json; for a `vocab.json` or `merges.txt`, those of an equivalent
    tokenizer.json."""
    data = path.read_bytes()
    return tokenizer_json_of_pair(path, config_path or path.with_name(CONFIG_FILE)) if is_pair(path, data) else data


def _local_file(name: str) -> Path:
    path = Path(name)
    return _file_in_folder(path) if path.is_dir() else path


def _file_in_folder(folder: Path) -> Path:
    files = [folder / name for name in FILES if (folder / name).is_file()] or sorted(folder.glob("*.tiktoken"))
    if not files:
        raise TokenizerError(
            f"expected {', '.join(FILES)} or *.tiktoken in {folder}, found {sorted(os.listdir(folder))[:8]}. Give the "
            "path of the tokenizer's file."
        )
    return files[0]


def _load_file(path: Path) -> Vocabulary:
    if path.suffix not in SUFFIXES:
        raise TokenizerError(
            f"expected a Hugging Face tokenizer.json, a SentencePiece .model or another of {', '.join(SUFFIXES)}, got "
            f"{path}. Rename it by its format."
        )
    data = path.read_bytes()
    if path.suffix == ".tiktoken" or (path.suffix == ".model" and is_rank_file(data)):
        return _of_ranks(path, read_ranks(path, data))
    if path.suffix == ".model":
        return _load_sentencepiece(path)
    return _of_ranks(path, read_tekken(path, data)) if is_tekken(data) else _load_huggingface(path)


# ---- tiktoken


def _tiktoken_names() -> list[str]:
    import tiktoken

    return tiktoken.list_encoding_names()


def _load_tiktoken(name: str) -> Vocabulary:
    scheme = GIGATOKEN_SCHEMES.get(name)
    if name in GPT2_NAMES:
        lines = _gpt2_ranks()
        return tiktoken_vocabulary(gpt2_encoding(name, lines), scheme, lines)
    return tiktoken_vocabulary(_tiktoken_encoding(name), scheme)


def tiktoken_vocabulary(encoding: Any, scheme: str | None, lines: bytes = b"") -> Vocabulary:
    """Return the vocabulary of a tiktoken encoding. `scheme` is gigatoken's name of its expression. `lines` has its
    ranks as `rank_lines` returns them; empty: they are made."""
    ranks = lines or rank_lines(encoding._mergeable_ranks)
    specials = sorted(encoding.special_tokens_set, key=encoding.encode_single_token)
    ids = {text: encoding.encode_single_token(text) for text in specials}
    eod = ids.get("<|endoftext|>")
    return Vocabulary(
        kind="tiktoken",
        size=encoding.n_vocab,
        eod=eod,
        bos=ids.get("<|startoftext|>", eod),  # GPT-2 has one token for begin and end
        special_tokens=specials,
        special_ids=encoding._special_tokens.values(),  # a special token may have the text of an ordinary token
        pieces=lambda: specials,
        digest=hashlib.sha256(ranks).hexdigest(),
        versions={"tiktoken": package_version("tiktoken")},
        encode=lambda texts: [_tiktoken_ids(encoding, text) for text in texts],
        decode=encoding.decode,
        build_fast=lambda: _gigatoken_from_ranks(ranks, scheme),
        byte_pairs=lambda: tiktoken_pairs(encoding._pat_str, encoding._mergeable_ranks),
        split=lambda: encoding._pat_str,
    )


def _of_ranks(path: Path, ranks: Ranks) -> Vocabulary:
    """Return the vocabulary of a rank file. `tokenizer_config.json` may name its special tokens."""
    vocabulary = tiktoken_vocabulary(ranks.encoding, None)
    ids = dict(zip(vocabulary.special_tokens, vocabulary.special_ids, strict=True))
    config = _read_config(path.with_name(CONFIG_FILE))
    named = (config.eos_token, EOD_TEXTS), (config.bos_token, BOS_TEXTS), (config.pad_token, PAD_TEXTS)
    eod, bos, pad = (
        next((ids[text] for text in ([_text(token)] if token else usual) if text in ids), None)
        for token, usual in named
    )
    vocabulary = vocabulary._replace(eod=eod, bos=bos, pad=pad)
    normalize, encode = ranks.normalize, vocabulary.encode
    if normalize is None:
        return vocabulary
    return vocabulary._replace(encode=lambda texts: encode([*map(normalize, texts)]), byte_pairs=lambda: None)


def _tiktoken_ids(encoding: Any, text: str) -> Any:
    """Return the ids of a text; None if tiktoken's pattern fails, as for a million spaces in a row with cl100k_base."""
    try:
        return encoding.encode_to_numpy(text, disallowed_special=())
    except ValueError:
        return None


def _tiktoken_encoding(name: str) -> Any:
    import tiktoken

    try:
        return tiktoken.get_encoding(name)
    except (OSError, ValueError) as error:  # OSError: requests; ValueError: a wrong hash
        if is_of_system(error):
            raise
        stem = {"p50k_edit": "p50k_base", "o200k_harmony": "o200k_base"}.get(name, name)
        url = f"https://openaipublic.blob.core.windows.net/encodings/{stem}.tiktoken"
        raise TokenizerError(
            f"tiktoken could not load the vocabulary of {name!r}: {error}. On a machine with a network download {url} "
            f"and save it as {hashlib.sha1(url.encode()).hexdigest()} in the folder that TIKTOKEN_CACHE_DIR names."
        ) from error


def gpt2_encoding(name: str = "gpt2", lines: bytes = b"") -> Any:
    """Return tiktoken's encoding of GPT-2. `lines`: its rank file; empty: that of this package."""
    import tiktoken
    from tiktoken_ext.openai_public import r50k_pat_str

    tokens = [*map(a2b_base64, (lines or _gpt2_ranks()).split()[::2])]  # the rank of a token is its line
    return tiktoken.Encoding(
        name=name,
        pat_str=r50k_pat_str,
        mergeable_ranks=dict(zip(tokens, range(len(tokens)), strict=True)),
        special_tokens={"<|endoftext|>": len(tokens)},
        explicit_n_vocab=len(tokens) + 1,
    )


def _gpt2_ranks() -> bytes:
    data = GPT2_FILE.read_bytes()
    if (digest := hashlib.sha256(data).hexdigest()) != GPT2:
        raise TokenizerError(f"{GPT2_FILE} is damaged: its SHA-256 is {digest}. Install gpu-pipeline again")
    return data


def _gigatoken_from_ranks(ranks: bytes, scheme: str | None) -> Any:
    import gigatoken

    if scheme is None:
        raise TokenizerError("gigatoken has no name for its expression")
    with open(os.memfd_create("ranks"), "wb") as file:  # in memory, where the temporary folder may be full
        file.write(ranks)
        file.flush()
        return gigatoken.Tokenizer.from_tiktoken(
            f"/proc/self/fd/{file.fileno()}", pretokenizer=scheme, special_tokens=None
        )


# ---- Hugging Face


def _load_from_hub(repository: str) -> Vocabulary:
    try:
        from huggingface_hub import hf_hub_download

        print_once("huggingface_hub")
        path = Path(hf_hub_download(repository, "tokenizer.json"))
    except (ImportError, OSError, ValueError) as error:  # huggingface_hub's errors are OSErrors or ValueErrors
        if is_of_system(error):
            raise
        raise TokenizerError(
            f"could not load tokenizer.json of {repository!r} from the Hugging Face hub (no such local path exists "
            f"either): {str(error).rstrip('.')}. Download the file and set tokenizer.name to its path."
        ) from error
    try:
        config = Path(hf_hub_download(repository, CONFIG_FILE))
    except (OSError, ValueError) as error:  # many repositories lack this file
        if is_of_system(error):
            raise
        return _load_huggingface(path)
    return _load_huggingface(path, config)


def _load_huggingface(path: Path, config_path: Path | None = None) -> Vocabulary:
    data = read_tokenizer_json(path, config_path)
    try:
        tokenizer, content = parse_tokenizer(data)
        with without_panics():
            _check_growth(path, content.get("normalizer"))
        added = tokenizer.get_added_tokens_decoder()
        marked = [added[i].content for i in sorted(added) if added[i].special]
        specials = special_texts(content["model"], marked)
        encoder, renamed = tokenizer, data
        if texts := texts_to_rename(content["model"], specials):
            renamed = json.dumps(with_renamed_tokens(content, texts)).encode()
            encoder, _ = parse_tokenizer(renamed)
    except TokenizerError:
        raise
    except Exception as error:
        if not is_failure(error):
            raise
        raise TokenizerError(f"expected a Hugging Face tokenizer.json in {path}: {error}. Correct its path.") from error
    if getattr(tokenizer.model, "dropout", None):
        raise TokenizerError(
            f"the model of {path} has dropout {tokenizer.model.dropout:g}: each run would draw other ids. Set dropout "
            "to null in the file, or use another tokenizer."
        )
    encoder.no_padding()
    encoder.no_truncation()
    encoder.encode_special_tokens = True  # special tokens in a text are plain text
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    _check_no_gap(path, tokenizer.get_vocab(with_added_tokens=False).values(), size)
    config = _read_config(config_path or path.with_name(CONFIG_FILE))
    begins, ends = (_text(config.cls_token), CLS_TEXT), (_text(config.sep_token), SEP_TEXT)
    eod = _special_id(tokenizer, _text(config.eos_token), (*EOD_TEXTS, *ends))
    bos = _special_id(tokenizer, _text(config.bos_token), (*BOS_TEXTS, *begins))
    cut_points = points_of_json(content)
    plain_text = cache(lambda: plain_ids(json.loads(data), specials))
    unknown = {tokenizer.token_to_id(unknown_token(content["model"]))} - {eod, bos}
    return Vocabulary(
        kind="huggingface",
        size=size,
        eod=eod,
        bos=bos,
        pad=_special_id(tokenizer, _text(config.pad_token), PAD_TEXTS),
        special_tokens=marked,
        special_ids={*map(tokenizer.token_to_id, specials)} - unknown,
        plain_ids=without_panics()(cache(lambda id_: plain_text()(tokenizer.id_to_token(id_)))),
        pieces=lambda: [token.content for token in added.values()],
        differing=[token["content"] for token in plain_tokens(content, with_rules=True)],
        digest=hashlib.sha256(data).hexdigest(),
        versions={"tokenizers": package_version("tokenizers")},
        encode=without_panics()(
            lambda texts: [e.ids for e in encoder.encode_batch_fast(texts, add_special_tokens=False)]
        ),
        decode=without_panics()(lambda ids: tokenizer.decode(ids, skip_special_tokens=False)),
        build_fast=without_panics()(lambda: _gigatoken_from_json(json.loads(renamed), encoder.token_to_id)),
        byte_pairs=lambda: huggingface_pairs(renamed),
        piece=tokenizer.id_to_token,
        split=lambda: split_of(json.loads(data)),
        cut_points=lambda: cut_points,
        whole_bytes=WHOLE_BYTES["huggingface"],
    )


def _check_growth(path: Path, normalizer: Any) -> None:
    """Raise TokenizerError if the normaliser may make a text more than MAX_GROWTH times longer, which could fill the
    memory.  The growth of steps multiplies: nine steps that each write ten letters for one turn it into 10^9 letters,
    of 16 bytes each in the library."""
    import tokenizers

    steps = list(steps_of(normalizer))
    longest = max((len(step.get(key) or "") for step in steps for key in ("content", "prepend")), default=0)
    if longest > MAX_GROWTH:
        raise TokenizerError(
            f"the normaliser of {path} inserts {longest:,} characters in one step, expected at most {MAX_GROWTH}. "
            "Correct the file, or use another tokenizer."
        )
    empty: dict[str, Any] = {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}
    built = [tokenizers.Tokenizer.from_str(json.dumps(empty | {"normalizer": step})).normalizer for step in steps]
    patterns = [text for step in steps for text in (step.get("pattern") or {}).values() if text]
    for probe in (*PRINTABLE, *patterns[:PROBED_PATTERNS]) if steps else ():
        text = (probe * PROBE_CHARACTERS)[:PROBE_CHARACTERS]
        limit = MAX_GROWTH * len(text.encode())
        for step in built:
            text = step.normalize_str(text)
            if len(text.encode()) > limit:
                raise TokenizerError(
                    f"the normaliser of {path} grows a text of {probe[:SHOWN_PATTERN]!r} by more than {MAX_GROWTH} "
                    "times: documents would fill the memory. Correct the file, or use another tokenizer."
                )


def _check_no_gap(path: Path, ids: Iterable[int], size: int) -> None:
    highest = max(ids, default=0)
    if highest >= size:
        raise TokenizerError(
            f"{path} has {size} tokens but ids up to {highest}, expected ids below {size}: training sizes its "
            "embedding by the number of tokens and would index past it. Renumber the vocabulary."
        )


class _AddedToken(msgspec.Struct):
    content: str | None = None


class _Config(msgspec.Struct):
    """The fields read from tokenizer_config.json: tokenizer.json does not name the token that ends a document."""

    eos_token: str | _AddedToken | None = None
    bos_token: str | _AddedToken | None = None
    sep_token: str | _AddedToken | None = None
    cls_token: str | _AddedToken | None = None
    pad_token: str | _AddedToken | None = None


def _read_config(path: Path) -> _Config:
    if not path.is_file():
        return _Config()
    try:
        content = path.read_bytes().decode()
        config = msgspec.convert(json.loads(content), _Config)
        for name in config.__struct_fields__:
            _text(getattr(config, name)).encode()  # fails for a lone surrogate, which JSON can spell
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise TokenizerError(
            f"expected JSON with special tokens in {path}: {error}. Repair or remove the file."
        ) from error
    return config


def _text(token: str | _AddedToken | None) -> str:
    return (token.content if isinstance(token, _AddedToken) else token) or ""


def _special_id(tokenizer: Any, configured: str, usual: tuple[str, ...]) -> int | None:
    ids = (tokenizer.token_to_id(text) for text in ([configured] if configured else usual) if text)
    return next((token for token in ids if token is not None), None)


def _gigatoken_from_json(content: dict[str, Any], id_of: Callable[[str], int | None]) -> Any:
    import gigatoken

    return gigatoken.Tokenizer.from_json(json.dumps(json_for_gigatoken(content, id_of)))


# ---- SentencePiece


def _load_sentencepiece(path: Path) -> Vocabulary:
    import sentencepiece

    data = path.read_bytes()
    try:
        model = sentencepiece.SentencePieceProcessor(model_proto=data)
        size = model.vocab_size()
        pieces = model.id_to_piece([*range(size)])
    except (RuntimeError, UnicodeDecodeError) as error:  # a piece need not be UTF-8
        raise TokenizerError(f"expected a SentencePiece model in {path}: {error}. Correct its path.") from error
    control = [i for i in range(size) if model.is_control(i)]
    return Vocabulary(
        kind="sentencepiece",
        size=size,
        eod=model.eos_id() if model.eos_id() >= 0 else None,
        bos=model.bos_id() if model.bos_id() >= 0 else None,
        pad=model.pad_id() if model.pad_id() >= 0 else None,
        special_tokens=[pieces[i] for i in control],
        special_ids=control,
        pieces=lambda: _sentencepiece_texts(data, [NORMAL]),
        digest=hashlib.sha256(data).hexdigest(),
        versions={"sentencepiece": package_version("sentencepiece")},
        encode=lambda texts: model.encode(texts, out_type=int, num_threads=1),
        decode=model.decode,
        build_fast=without_panics()(lambda: _gigatoken_from_json(_without_control(data), model.piece_to_id)),
        piece=model.id_to_piece,
        split=lambda: split_of(json.loads(_sentencepiece_json(data))),
        cut_points=lambda: points_of_sentencepiece(data, pieces),
        whole_bytes=WHOLE_BYTES["sentencepiece"],
    )


def _sentencepiece_json(data: bytes) -> str:
    # The public from_sentencepiece keeps control tokens as special tokens, so gigatoken would parse them in a text.
    from gigatoken._load.sentencepiece import sentencepiece_to_tokenizer_json

    return str(sentencepiece_to_tokenizer_json(data))


def _sentencepiece_texts(data: bytes, without: Collection[int]) -> list[str]:
    """Return the pieces of a model whose type is not in `without`."""
    from gigatoken._load.sentencepiece import _fields, _scalars

    pieces: list[dict[int, Any]] = [_scalars(value) for field, value in _fields(data) if field == PIECES]  # type: ignore[arg-type]
    return [piece[TEXT].decode() for piece in pieces if piece.get(TYPE, NORMAL) not in without]


def _without_control(data: bytes) -> dict[str, Any]:
    """Return a model as a tokenizer.json that finds no control piece, byte or unknown piece in a text."""
    content = json.loads(_sentencepiece_json(data))
    content = with_renamed_tokens(content, [t["content"] for t in content["added_tokens"] if t["special"]])
    return content | {"model": without_merges(content["model"], _sentencepiece_texts(data, MERGED_TYPES))}
