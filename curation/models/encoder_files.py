# SPDX-License-Identifier: Apache-2.0
"""The folder of a transformer: `config.json`, `model.safetensors` or its shards, `tokenizer.json`.

Everything here is read without PyTorch, so that recipes are checked fast. A model is never downloaded, code in its
folder is never run, and pickles are refused: loading one runs code.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from curation.base.errors import InputError
from curation.base.system.files import known_sha256
from curation.base.system.os_errors import fault_of

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
SENTENCE, POOLING, MODULES = "sentence_bert_config.json", "1_Pooling/config.json", "modules.json"
SHARDS = "model.safetensors.index.json"  # lists the files of weights, if there are several
SHARD_NAME = re.compile(r"[\w.-]+\.safetensors", re.ASCII)
REQUIRED = (CONFIG, WEIGHTS, TOKENIZER)
OPTIONAL = (SENTENCE, POOLING, MODULES)  # of sentence-transformers
SUPPORTED_MODULES = ("Transformer", "Pooling", "Normalize")
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
# In these families, the result of a window does not depend on the rest of its batch: a test compares bits.
ENCODERS = (
    "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "modernbert", "mpnet", "roberta",
    "xlm-roberta",
)  # fmt: skip
CAUSAL = ("gpt2", "gpt_neox", "llama", "mistral", "qwen2", "qwen3")
OFFSET_FAMILIES = ("camembert", "mpnet", "roberta", "xlm-roberta")  # their positions begin after the padding id
MAKES_CODE = ("auto_map", "fusion_config", "quantization_config")  # values that make transformers load other code
MIN_TOKENS = 8  # of a window
MODELS_KEPT = 4

Size = Annotated[int, msgspec.Meta(ge=1)]
Positions = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]  # the package allocates tables of these sizes
Kind = TypeVar("Kind")
Config = TypeVar("Config", bound="ModelConfig")


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The values of `config.json` that are needed without PyTorch. `networks` reads all values."""

    model_type: str = ""
    pad_token_id: int | None = None
    architectures: list[str] | None = None
    problem_type: str | None = None
    id2label: dict[str, str] = {}
    fc_dropout: float | None = None

    @property
    def is_of_curator(self) -> bool:
        """Whether the model has the classifier head that NeMo Curator's models have."""
        return self.fc_dropout is not None


class EncoderConfig(ModelConfig, frozen=True, kw_only=True):
    """The values read from the `config.json` of an encoder. BERT and its relatives use different names for the same
    sizes."""

    vocab_size: Size
    hidden_size: Size | None = None
    dim: Size | None = None  # `hidden_size` of DistilBERT
    max_position_embeddings: Positions

    @property
    def width(self) -> int:
        """The dimensions of a vector."""
        return self.hidden_size or self.dim or 0


class CausalConfig(ModelConfig, frozen=True, kw_only=True):
    """The values of a causal language model."""

    vocab_size: Size
    max_position_embeddings: Positions | None = None
    n_positions: Positions | None = None  # `max_position_embeddings` of GPT-2
    bos_token_id: int | None = None

    @property
    def positions(self) -> int:
        """The most tokens that the model reads; 0 if its configuration names no limit."""
        return self.max_position_embeddings or self.n_positions or 0


class _Shards(msgspec.Struct):
    weight_map: dict[str, str]


class _Module(msgspec.Struct):
    type: str


class _Sentence(msgspec.Struct):
    max_seq_length: int | None = None


class _Pooling(msgspec.Struct):
    pooling_mode_cls_token: bool = False
    pooling_mode_mean_tokens: bool = False
    pooling_mode_max_tokens: bool = False
    pooling_mode_mean_sqrt_len_tokens: bool = False
    pooling_mode_weightedmean_tokens: bool = False
    pooling_mode_lasttoken: bool = False


class ModelFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The checked folder of a transformer.

    max_tokens  tokens of a window, with the special ones
    by_mean     whether the vector of a window is the mean of its tokens' vectors; else it is that of the first token
    """

    folder: Path
    config: ModelConfig
    max_tokens: int
    by_mean: bool

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of a classifier in the order of its outputs; empty for an encoder without a head."""
        heads = [name for name in self.config.architectures or () if name.endswith("ForSequenceClassification")]
        if not heads and not self.config.is_of_curator:
            return ()
        names = self.config.id2label or {"0": "LABEL_0", "1": "LABEL_1"}  # two labels are the default of this format
        return tuple(names[key] for key in sorted(names, key=int))

    @property
    def is_regressor(self) -> bool:
        """Whether the one output of the head is a number, not a probability."""
        return self.config.problem_type == "regression" or len(self.labels) == 1


class EncoderFiles(ModelFiles, frozen=True, kw_only=True):
    """The checked folder of an encoder in safetensors."""

    config: EncoderConfig


class CausalFiles(ModelFiles, frozen=True, kw_only=True):
    """The checked folder of a causal language model in safetensors; it gives no vectors."""

    config: CausalConfig


def is_encoder_path(model: str) -> bool:
    """Return whether a path names a transformer, as opposed to the file of a fastText model."""
    return os.path.isdir(model) or model.endswith((".safetensors", ".onnx", *PICKLES[1:]))


def open_encoder(model: str) -> EncoderFiles:
    """Return the checked folder of an encoder, without its weights. Raises InputError for a folder that has no
    encoder."""
    return _encoder(Path(model), check_folder(model))


def open_causal(model: str) -> CausalFiles:
    """Return the checked folder of a causal language model, without its weights. Raises InputError for a folder that
    has none."""
    return _causal(Path(model), check_folder(model))


def check_folder(model: str) -> tuple[tuple[int, int], ...]:
    """Return the times and sizes of the files of a model. Times and sizes show whether a file was replaced. Raises
    InputError for a folder that lacks a file."""
    folder = Path(model)
    if not folder.is_dir():
        _refuse(folder)
    return _stamps(folder)


def encoder_digests(model: str) -> dict[str, str]:
    """Return path -> SHA-256 of the files that the results depend on."""
    check_folder(model)
    return {str(path): known_sha256(path) for path in _files(Path(model))}


def weight_files(folder: Path) -> list[Path]:
    """Return the files of weights of a folder. Raises InputError if the index of shards names a file outside the
    folder."""
    if (folder / WEIGHTS).exists() or not (folder / SHARDS).exists():
        return [folder / WEIGHTS]
    names = sorted({*decoded(folder / SHARDS, _Shards).weight_map.values()})
    if wrong := next((name for name in names if not SHARD_NAME.fullmatch(name)), None):
        raise InputError(f"{folder / SHARDS} names {wrong!r}; expected names of .safetensors in its folder")
    return [folder / name for name in names]


def _files(folder: Path) -> list[Path]:
    weights = weight_files(folder)
    index = [folder / SHARDS] if weights != [folder / WEIGHTS] else []
    required = [folder / CONFIG, *index, *weights, folder / TOKENIZER]
    return [*required, *(folder / name for name in OPTIONAL if (folder / name).is_file())]


def _refuse(path: Path) -> None:
    if path.suffix in PICKLES:
        raise InputError(
            f"{path} is a pickle, and loading one can run code. Save the model as safetensors, and give the folder of "
            f"{', '.join(REQUIRED)}"
        )
    if path.exists():
        raise InputError(f"{path} is a file; give the folder that holds {', '.join(REQUIRED)}")
    raise InputError(
        f"there is no folder {path}. Models are never downloaded: give the path of a local folder with "
        f"{', '.join(REQUIRED)}"
    )


def _stamps(folder: Path) -> tuple[tuple[int, int], ...]:
    stamps = []
    for path in _files(folder):
        try:
            status = path.stat()
        except FileNotFoundError:
            raise InputError(f"{folder} is no transformer: {_missing(folder, path.name)}") from None
        except OSError as error:
            raise InputError(f"cannot open {path}: {fault_of(error)}") from None
        stamps.append((status.st_mtime_ns, status.st_size))
    return tuple(stamps)


def _missing(folder: Path, name: str) -> str:
    others = sorted(path.name for path in folder.iterdir())
    if name == WEIGHTS and (pickles := [other for other in others if other.endswith(PICKLES)]):
        return f"its weights {pickles[0]} are a pickle, which can run code. Save the model as {WEIGHTS}"
    if name == TOKENIZER and "vocab.txt" in others:
        return f"it has vocab.txt and no {TOKENIZER}. Save its fast tokenizer (tokenizer.save) into the folder"
    return f"it has no {name}. The folder needs {', '.join(REQUIRED)}"


def _config(folder: Path, kind: type[Config], families: tuple[str, ...]) -> Config:
    path = folder / CONFIG
    values = decoded(path, dict[str, Any])
    if (family := values.get("model_type", "")) not in families:
        raise unsupported(path, "model_type", family, f"one of {', '.join(families)}")
    if name := next(filter(values.get, MAKES_CODE), None):
        raise InputError(f"{path} has {name}: the model needs code that is not in transformers, or is quantised")
    return decoded(path, kind)


@lru_cache(MODELS_KEPT)
def _encoder(folder: Path, stamps: tuple[tuple[int, int], ...]) -> EncoderFiles:
    config, path = _config(folder, EncoderConfig, ENCODERS), folder / CONFIG
    padding = config.pad_token_id or 0
    if not 0 <= padding < config.vocab_size:
        raise unsupported(path, "pad_token_id", padding, f"a token below {config.vocab_size}")
    if not config.width:
        raise InputError(f"{path} has no hidden_size")
    check_labels(path, config)
    positions = config.max_position_embeddings - (padding + 1 if config.model_type in OFFSET_FAMILIES else 0)
    max_tokens = tokens_of(folder, positions)
    return EncoderFiles(folder=folder, config=config, max_tokens=max_tokens, by_mean=is_by_mean(folder))


@lru_cache(MODELS_KEPT)
def _causal(folder: Path, stamps: tuple[tuple[int, int], ...]) -> CausalFiles:
    config, path = _config(folder, CausalConfig, CAUSAL), folder / CONFIG
    if config.positions < 2:
        raise InputError(f"{path} has no max_position_embeddings or n_positions of 2 or more")
    begin = config.bos_token_id
    if begin is not None and not 0 <= begin < config.vocab_size:
        raise unsupported(path, "bos_token_id", begin, f"a token below {config.vocab_size}")
    return CausalFiles(folder=folder, config=config, max_tokens=config.positions, by_mean=False)


def tokens_of(folder: Path, positions: int) -> int:
    """Return the tokens of a window, with the special ones: `positions`, or fewer if sentence-transformers says so."""
    sentence = decoded(folder / SENTENCE, _Sentence) if (folder / SENTENCE).is_file() else _Sentence()
    max_tokens = min(positions, sentence.max_seq_length or positions)
    if max_tokens < MIN_TOKENS:
        raise InputError(f"{folder}: its windows have {max_tokens} tokens, expected {MIN_TOKENS} or more")
    return max_tokens


def decoded(path: Path, kind: type[Kind]) -> Kind:
    """Return a file of JSON as an object of `kind`. Raises InputError for a file that cannot be read or has values of
    other types."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise InputError(f"cannot open {path}: {fault_of(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        fault = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise InputError(f"{path} is not the configuration of a transformer: {fault}") from None


def unsupported(path: Path, name: str, value: Any, expected: str) -> InputError:
    """Return the error for a value of a configuration that is not supported."""
    return InputError(f"{path} has {name} {value!r}, which is not supported; expected {expected}")


def check_labels(path: Path, config: ModelConfig) -> None:
    """Raise InputError unless `id2label` has one label for each of the outputs 0, 1, ..."""
    if sorted(config.id2label) != sorted(map(str, range(len(config.id2label)))):
        raise unsupported(path, "id2label", config.id2label, "names of the labels 0, 1, ...")


def is_by_mean(folder: Path) -> bool:
    """Return whether the vector of a window is the mean of its tokens' vectors; else it is the vector of the first
    token. Raises InputError for a folder of sentence-transformers with further layers, such as Dense, or another
    pooling."""
    path = folder / MODULES
    modules = decoded(path, list[_Module]) if path.is_file() else []
    for name in (module.type.rpartition(".")[2] for module in modules):
        if name not in SUPPORTED_MODULES:
            raise InputError(f"{path} has the module {name}; {', '.join(SUPPORTED_MODULES)} are supported")
    path = folder / POOLING
    if not path.is_file():
        return True
    pooling = msgspec.structs.asdict(decoded(path, _Pooling))
    modes = [name for name, chosen in pooling.items() if chosen]
    if modes not in (["pooling_mode_mean_tokens"], ["pooling_mode_cls_token"]):
        raise InputError(f"{path} pools by {', '.join(modes) or 'nothing'}; the mean or the first token is supported")
    return modes == ["pooling_mode_mean_tokens"]
