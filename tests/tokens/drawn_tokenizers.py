# SPDX-License-Identifier: Apache-2.0
"""Tokenizers drawn at random with the ids that their libraries give, and texts that are hard for them."""

import io
import json
import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import sentencepiece
import tiktoken
import tokenizers

from curation.kernels.expressions import CL100K, GPT2, LLAMA3, O200K
from curation.tokens import vocabularies
from curation.tokens.byte_pairs import bytes_of_tokens
from tests.tokens.byte_pairs import EXPRESSIONS

KINDS = (
    "sentencepiece bpe", "sentencepiece unigram", "BPE", "byte-level BPE", "Unigram", "WordPiece", "WordLevel",
    "tiktoken",
)  # fmt: skip
UNREADABLE = "\U0010fffd"  # begins the name of a special token in the reference's vocabulary: no text here has it

SENTENCES = [
    "the quick brown fox jumps over the lazy dog and the cat",
    "Hello world, it's 2024! naïve café, they're here; we'll see",
    "def f(x):\n\treturn {'a': [1, 2]}  # <b>x</b> </s> <sep>",
    "中文沒有空格 한국어 русский the end of the text",
    'a [MASK] b <|user|> c (d) "e" #1 100% the <eos> of <pad> it',
] * 3
SPECIALS = [
    "<s>", "</s>", "<eos>", "<pad>", "<mask>", "[MASK]", "[CLS]", "<|endoftext|>", "<|im_start|>", "the end", "fox",
]  # fmt: skip
ADDED = [
    "<sep>", "[X]", "ab", " the", "<|user|>", "\n", "\t", "  ", "é", "中", "😀", "Hello world", "a b", "</w>", "<s",
    "x>", "▁▁", "THE", "e", "100%", "\n\n", "ﬁ", "quick▁brown", "\u0301",
]  # fmt: skip
RARE = [
    "<sep>", "[X]", "<|user|>", "quick▁brown", "a b", "</w>", "x>", "<s", "100%", "😀", "\u0301", "th", "▁the",
    "jumps over",
]  # fmt: skip

TEXTS = [
    "", " ", "\n", "\n\n\n", "\t \r\n \u00a0 \u2003 \u3000x  y   z    ", "  two  spaces  ", "\x00", "a\x00b\x00",
    "\ufeff\u200b\u200d", "Hello world, it's THE end; we'll can't I'M don’t __init__ a1b22c333 4444",
    "e\u0301 \u0301\u0301 \u1e9b\u0323 İ ß ﬁ Ⅷ ² ½ ٣٤", "👩\u200d👩\u200d👧\u200d👦👍🏽🇫🇷❤️😀😀",
    "中文沒有空格。ひらがな 한국어 ภาษาไทย العربية हिन्दी", "▁", "▁▁a▁ b▁", " ▁ ", "<0x0A><0xE4> <unk> <unk",
    "＜/s＞ ＜ｅｏｓ＞ ［ＭＡＳＫ］ ﹤s﹥", "<s><s></s> <S> </S>", "a" * 2000, " " * 2000, "\n" * 500, "!?" * 400,
    "1" * 400, "the " * 300, "中" * 400, "😀" * 200, "e\u0301" * 300, "\u0378\u0530\ue000\U0010ffff\uffff",
    "\u0130i\u0307 ſ K Å ﬃ ㍿ ﷺ", "\r\r\n\n\r a\r\nb", "x\u2028y\u2029z\u0085w\x0bv\x0cu\x1ft",
    "\U000323b0 \u1c89 \ua7cb",
]  # fmt: skip
GLUE = [
    "", "", " ", "  ", "\n", "\t", "a", "the", "▁", ".", "<", ">", "\u0301", "\u200d", "\u00a0", "\u3000", "1", "é",
    "中", "\x00", "'s", "\r\n",
]  # fmt: skip


class Drawn(NamedTuple):
    """A drawn tokenizer.

    kind       one of KINDS
    name       what to call it in a message: its options
    file       the name that its content has as a file; "" for tiktoken, which has `build` instead
    content    bytes of the file
    build      gives the vocabulary of a tokenizer without a file
    encode     the ids of a text by the library, special tokens as plain text
    specials   ids that no text may give
    pieces     texts of its special, user-defined and added tokens
    """

    kind: str
    name: str
    file: str
    content: bytes
    build: Callable[[], vocabularies.Vocabulary] | None
    encode: Callable[[str], list[int]]
    specials: set[int]
    pieces: list[str]


def draw(number: int) -> Drawn:
    """The tokenizer of a number, each time the same."""
    chance = random.Random(number)
    kind = KINDS[number % len(KINDS)]
    if kind.startswith("sentencepiece"):
        return _sentencepiece(kind, chance)
    return _tiktoken(kind, chance) if kind == "tiktoken" else _huggingface(kind, chance)


def hard_texts(drawn: Drawn, count: int, seed: int) -> list[str]:
    """TEXTS, and texts of the tokenizer's pieces at their beginning, middle and end, doubled, in words and widened."""
    chance = random.Random(seed)
    texts = list(TEXTS)
    for piece in drawn.pieces:
        wide = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in piece)
        texts += [
            piece,
            f"{piece}{piece}",
            f"a {piece} b",
            f" {piece} ",
            f"word{piece}word",
            f"\n{piece}\n",
            wide,
            f"x{wide}y",
        ]
        texts += [piece[:-1], piece.upper(), piece.replace(">", " >"), f"{piece}\u0301", f"▁{piece}▁"]
    chance.shuffle(texts)
    del texts[count * 3 // 4 :]
    parts = [*drawn.pieces, *drawn.pieces, *" ".join(SENTENCES).split(" ")[:60], *GLUE]
    while len(texts) < count:
        mixed = (chance.choice(GLUE if chance.random() < 0.5 else parts) for _ in range(chance.randrange(1, 30)))
        texts.append("".join(mixed))
    return texts


def _some(chance: random.Random, texts: list[str], most: int) -> list[str]:
    return chance.sample(texts, chance.randrange(most + 1))


# ---- SentencePiece


def _sentencepiece(kind: str, chance: random.Random) -> Drawn:
    usual = chance.random() < 0.5  # as Llama 2 and Mistral, which gigatoken supports
    identity = usual or chance.random() < 0.4
    options: dict[str, Any] = {
        "model_type": kind.split()[1],
        "byte_fallback": usual or chance.random() < 0.6,
        "normalization_rule_name": "identity" if identity else chance.choice(["nmt_nfkc", "nfkc", "nmt_nfkc_cf"]),
        "add_dummy_prefix": chance.random() < 0.6,
        "remove_extra_whitespaces": not usual and chance.random() < 0.7,
        "user_defined_symbols": _some(chance, RARE if usual else ADDED, 5),
        "control_symbols": _some(
            chance, [text for text in SPECIALS if len(text) > 3 and text not in ("</s>", "fox")], 3
        ),
        "split_by_whitespace": chance.random() < 0.7,
        "split_by_number": chance.random() < 0.5,
        "split_digits": chance.random() < 0.3,
        "split_by_unicode_script": chance.random() < 0.7,
        "treat_whitespace_as_suffix": not usual and chance.random() < 0.15,
        "allow_whitespace_only_pieces": chance.random() < 0.5,
        "vocab_size": chance.choice([340, 420]),
    }
    if chance.random() < 0.3:
        options["unk_surface"] = " <?> "
    if chance.random() < 0.3:
        options |= {"pad_id": 3}
    buffer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in SENTENCES for line in text.split("\n")),
        model_writer=buffer, hard_vocab_limit=False, num_threads=1, minloglevel=2, **options,
    )  # fmt: skip
    model = sentencepiece.SentencePieceProcessor(model_proto=buffer.getvalue())
    specials = {number for number in range(model.vocab_size()) if model.is_control(number)}
    pieces = [*map(model.id_to_piece, sorted(specials)), *options["user_defined_symbols"], "<unk>"]
    return Drawn(kind, f"{kind} {options}", "tokenizer.model", buffer.getvalue(), None, model.encode, specials, pieces)


# ---- tokenizer.json


def _split(pattern: Any, behavior: str = "Isolated") -> dict[str, Any]:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}


def _byte_level(chance: random.Random, use_regex: bool) -> dict[str, Any]:
    prefix = chance.random() < 0.2
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": use_regex}


def _sequence(kind: str, steps: list[Any]) -> dict[str, Any] | None:
    return {"type": "Sequence", kind: steps} if len(steps) > 1 else steps[0] if steps else None


NORMALIZERS: list[dict[str, Any]] = [
    *({"type": name} for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt")),
    {"type": "Strip", "strip_left": True, "strip_right": False},
    {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "lowercase": True},
    {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    {"type": "Replace", "pattern": {"String": "("}, "content": "<"},
]  # fmt: skip
LLAMA_STEPS = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
SPLITTERS: list[dict[str, Any]] = [
    *({"type": name} for name in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer", "UnicodeScripts")),
    {"type": "Punctuation", "behavior": "Isolated"},
    {"type": "Digits", "individual_digits": True},
    {"type": "CharDelimiterSplit", "delimiter": "-"},
    _split({"Regex": r"\s+"}, "Removed"),
    _split({"String": " "}, "MergedWithPrevious"),
]


def _normalizer(kind: str, chance: random.Random) -> dict[str, Any] | None:
    if kind == "byte-level BPE" and chance.random() < 0.75:
        return chance.choice([None, None, {"type": "NFC"}])
    if kind == "BPE" and chance.random() < 0.5:
        return _sequence("normalizers", LLAMA_STEPS)
    return _sequence("normalizers", chance.sample(NORMALIZERS, chance.choice([0, 0, 1, 1, 2, 3])))


def _pre_tokenizer(kind: str, chance: random.Random, normalizer: Any) -> dict[str, Any] | None:
    if kind == "byte-level BPE":
        regex = chance.choice([None, EXPRESSIONS[LLAMA3], *EXPRESSIONS.values()])
        if normalizer == {"type": "NFC"}:
            regex = EXPRESSIONS[LLAMA3].replace(r"\p{N}{1,3}", r"\p{N}")
        if regex is None or chance.random() < 0.3:
            return _byte_level(chance, True)
        return _sequence("pretokenizers", [_split({"Regex": regex}), _byte_level(chance, False)])
    if (kind == "BPE" and normalizer == _sequence("normalizers", LLAMA_STEPS)) or chance.random() < 0.1:
        return None
    if kind in ("BPE", "Unigram") and chance.random() < 0.6:
        scheme = chance.choice(["always", "never", "first"])
        return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": chance.random() < 0.7}
    return _sequence("pretokenizers", chance.sample(SPLITTERS, chance.choice([1, 1, 2])))


def _words(normalizer: Any, pre_tokenizer: Any) -> list[str]:
    """The words of SENTENCES, as the tokenizer cuts them."""
    steps = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}
    built = tokenizers.Tokenizer.from_str(
        json.dumps(steps | {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer})
    )
    texts = [built.normalizer.normalize_str(text) if built.normalizer else text for text in SENTENCES]
    if built.pre_tokenizer is None:
        return [word for text in texts for word in text.split(" ")]
    return [word for text in texts for word, _ in built.pre_tokenizer.pre_tokenize_str(text)]


def _merges(words: list[str], count: int) -> list[tuple[str, str]]:
    parts = Counter(tuple(word) for word in words)
    merges: list[tuple[str, str]] = []
    for _ in range(count):
        pairs: Counter[tuple[str, str]] = Counter()
        for symbols, times in parts.items():
            for pair in pairwise(symbols):
                pairs[pair] += times
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        parts = Counter({_merged(symbols, best): times for symbols, times in parts.items()})
    return merges


def _merged(symbols: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    found: list[str] = []
    for symbol in symbols:
        if found and (found[-1], symbol) == pair:
            found[-1] += symbol
        else:
            found.append(symbol)
    return tuple(found)


def _model(kind: str, chance: random.Random, words: list[str], first: list[str]) -> dict[str, Any]:
    """A model whose vocabulary begins with some special tokens, and has the unknown token at its beginning."""
    letters = sorted({letter for word in words for letter in word})
    if kind == "Unigram":
        cuts = {word[a : a + n] for word in words for a in range(len(word)) for n in (2, 3, 5)}
        pieces = [*letters, *chance.sample(sorted(cuts - {*letters}), min(len(cuts) // 2, 120)), *dict.fromkeys(words)]
        given = ["<unk>", *first, *dict.fromkeys(piece for piece in pieces if piece not in first)]
        fallback = chance.random() < 0.5
        given += [f"<0x{number:02X}>" for number in range(256)] if fallback else []
        scores = [0.0 if piece in first or piece == "<unk>" else -chance.uniform(2, 12) for piece in given]
        return {
            "type": kind,
            "unk_id": 0,
            "vocab": [*map(list, zip(given, scores, strict=True))],
            "byte_fallback": fallback,
        }
    if kind in ("WordPiece", "WordLevel"):
        parts = (
            [*letters, *("##" + letter for letter in letters), *chance.sample(words, 12)]
            if kind == "WordPiece"
            else words
        )
        vocab = ["<unk>", *first, *parts]
        more = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100} if kind == "WordPiece" else {}
        return {"type": kind, "unk_token": "<unk>", "vocab": _numbered(vocab), **more}
    merges = _merges(words, chance.choice([40, 120]))
    if kind == "byte-level BPE":
        letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    unknown = {} if kind == "byte-level BPE" else {"unk_token": "<unk>"}
    fallback = kind == "BPE" and chance.random() < 0.8
    names = [f"<0x{number:02X}>" for number in range(256)] if fallback else []
    vocab = [*unknown.values(), *first, *names, *letters, *(left + right for left, right in merges)]
    more = {"fuse_unk": chance.random() < 0.5, "byte_fallback": fallback, "ignore_merges": chance.random() < 0.25}
    return {"type": "BPE", "vocab": _numbered(vocab), "merges": [list(pair) for pair in merges], **unknown, **more}


def _numbered(texts: list[str]) -> dict[str, int]:
    return {text: number for number, text in enumerate(dict.fromkeys(texts))}


DECODERS: list[Any] = [
    None,
    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    {"type": "WordPiece", "prefix": "##", "cleanup": True},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
]


def _huggingface(kind: str, chance: random.Random) -> Drawn:
    normalizer = _normalizer(kind, chance)
    pre_tokenizer = _pre_tokenizer(kind, chance, normalizer)
    words = _words(normalizer, pre_tokenizer)
    specials = _some(chance, SPECIALS, 5)
    inside = [text for text in specials if chance.random() < 0.6]  # the others have ids above those of the model
    content: dict[str, Any] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": chance.choice(DECODERS),
        "model": _model(kind, chance, words, inside),
    }  # fmt: skip
    usual = chance.random() < 0.5
    ordinary = [text for text in _some(chance, RARE if usual else ADDED, 5) if text not in specials]
    names = [*specials, *ordinary] + (["<unk>"] if chance.random() < 0.7 and kind != "byte-level BPE" else [])
    chance.shuffle(names)
    known = {text: number for number, text in enumerate(_texts_of(content["model"]))}
    for text in names:
        flags = {flag: chance.random() < 0.15 and not usual for flag in ("single_word", "lstrip", "rstrip")}
        special = text in specials or text == "<unk>"
        flags |= {"normalized": chance.random() < (0.1 if special or usual else 0.5), "special": special}
        content["added_tokens"].append({"id": known.setdefault(text, len(known)), "content": text, **flags})
    content["added_tokens"].sort(key=lambda token: token["id"])
    hidden = [token["content"] for token in content["added_tokens"] if token["special"]]
    reference = tokenizers.Tokenizer.from_str(json.dumps(_without_texts(content, hidden)))
    reference.encode_special_tokens = True
    name = f"{kind} " + json.dumps({key: value for key, value in content.items() if key != "model"}, ensure_ascii=False)
    ids = {known[text] for text in specials}
    data = json.dumps(content, ensure_ascii=False).encode()
    encode = lambda text: reference.encode(text, add_special_tokens=False).ids  # noqa: E731
    return Drawn(kind, name, "tokenizer.json", data, None, encode, ids, [*names, "<unk>"])


def _texts_of(model: dict[str, Any]) -> list[str]:
    return [piece[0] for piece in model["vocab"]] if model["type"] == "Unigram" else [*model["vocab"]]


def _without_texts(content: dict[str, Any], specials: list[str]) -> dict[str, Any]:
    """The tokenizer in which special tokens have names that no text has. All ids stay the same.

    A special unknown token stays the id of unknown text, and is no longer that of its own name. The library skips the
    text of special tokens, so that other added tokens are not found in it: it needs this text once more."""
    hidden = {text: f"{UNREADABLE}{number}" for number, text in enumerate(specials)}
    model = dict(content["model"])
    if model["type"] == "Unigram":
        model["vocab"] = [[hidden.get(text, text), score] for text, score in model["vocab"]]
    else:
        model["vocab"] = {hidden.get(text, text): number for text, number in model["vocab"].items()}
    if "merges" in model:
        model["merges"] = [pair for pair in model["merges"] if not {*pair, "".join(pair)} & {*hidden}]
    if model.get("unk_token"):
        model["unk_token"] = hidden.get(model["unk_token"], model["unk_token"])
    added = [token | {"content": hidden.get(token["content"], token["content"])} for token in content["added_tokens"]]
    skipped = [token for token in content["added_tokens"] if token["content"] in hidden]
    return content | {"model": model, "added_tokens": added + skipped}


# ---- tiktoken


SCHEMES = {"gpt2": GPT2, "gpt4": CL100K, "o200k": O200K}  # gigatoken's names


def _tiktoken(kind: str, chance: random.Random) -> Drawn:
    scheme = chance.choice([*SCHEMES])
    words = _words(None, _byte_level(random.Random(1), True))
    merged = [left + right for left, right in _merges(words, chance.choice([60, 200]))]
    tokens = [*bytes_of_tokens(_numbered([*sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), *merged]))]
    specials = _some(chance, [*SPECIALS, *ADDED], 6)
    ids = {text: len(tokens) + number for number, text in enumerate(specials)}
    ranks = {token: rank for rank, token in enumerate(tokens)}
    encoding = tiktoken.Encoding(
        "drawn", pat_str=EXPRESSIONS[SCHEMES[scheme]], mergeable_ranks=ranks, special_tokens=ids
    )
    name, build = f"tiktoken {scheme} {specials}", lambda: vocabularies.tiktoken_vocabulary(encoding, scheme)
    return Drawn(kind, name, "", b"", build, encoding.encode_ordinary, {*ids.values()}, specials)
