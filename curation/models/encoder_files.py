# SPDX-License-Identifier: Apache-2.0
"""The folder of a transformer: `config.json`, `model.safetensors`, `tokenizer.json`.

Everything here is read without PyTorch, so that recipes are checked fast. A model is never downloaded, code in its
folder is never run, and pickles are refused: loading one runs code.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from curation.errors import InputError
from curation.system.files import known_sha256
from curation.system.os_errors import fault_of

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
SENTENCE, POOLING, MODULES = "sentence_bert_config.json", "1_Pooling/config.json", "modules.json"
REQUIRED = (CONFIG, WEIGHTS, TOKENIZER)
OPTIONAL = (SENTENCE, POOLING, MODULES)  # of sentence-transformers
SUPPORTED_MODULES = ("Transformer", "Pooling", "Normalize")
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert")
OFFSET_FAMILIES = FAMILIES[1:]  # their positions begin after the padding id
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
MIN_TOKENS = 8  # of a window
MODELS_KEPT = 4

Size = Annotated[int, msgspec.Meta(ge=1)]
Kind = TypeVar("Kind")


class Family(msgspec.Struct):
    model_type: str = ""


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The values of `config.json` that name the outputs; others are ignored."""

    pad_token_id: int = 0
    architectures: list[str] = []
    problem_type: str | None = None
    id2label: dict[str, str] = {}


class EncoderConfig(ModelConfig, frozen=True, kw_only=True):
    """The values of `config.json` that the forward pass needs."""

    model_type: str
    vocab_size: Size
    hidden_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    intermediate_size: Size
    max_position_embeddings: Size
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-12
    position_embedding_type: str = "absolute"


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
    by_mean     whether the vector of a window is the mean of its tokens; else it is the first one
    """

    folder: Path
    config: ModelConfig
    max_tokens: int
    by_mean: bool

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of a classifier in the order of its outputs; empty for an encoder without a head."""
        if not any(name.endswith("ForSequenceClassification") for name in self.config.architectures):
            return ()
        names = self.config.id2label or {"0": "LABEL_0", "1": "LABEL_1"}  # two are the default of this format
        return tuple(names[key] for key in sorted(names, key=int))

    @property
    def is_regressor(self) -> bool:
        """Whether the one output of the head is a number, not a probability."""
        return self.config.problem_type == "regression" or len(self.labels) == 1


class EncoderFiles(ModelFiles, frozen=True, kw_only=True):
    """The checked folder of a BERT or RoBERTa in safetensors."""

    config: EncoderConfig


def is_encoder_path(model: str) -> bool:
    """Return whether a path names a transformer, as opposed to the file of a fastText model."""
    return os.path.isdir(model) or model.endswith((".safetensors", ".onnx", *PICKLES[1:]))


def open_encoder(model: str) -> EncoderFiles:
    """Return the checked folder of an encoder, without its weights. InputError for a folder that is none."""
    return _open(Path(model), check_folder(model))


def check_folder(model: str) -> tuple[tuple[int, int], ...]:
    """Return the times and sizes of the files of a model, which detect that other files replaced them. InputError for a
    folder that lacks one."""
    folder = Path(model)
    if not folder.is_dir():
        _refuse(folder)
    return _stamps(folder)


def encoder_digests(model: str) -> dict[str, str]:
    """Return path -> SHA-256 of the files that the results depend on."""
    check_folder(model)
    folder = Path(model)
    names = [*REQUIRED, *(name for name in OPTIONAL if (folder / name).is_file())]
    return {str(folder / name): known_sha256(folder / name) for name in names}


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
    for name in (*REQUIRED, *OPTIONAL):
        try:
            status = (folder / name).stat()
        except FileNotFoundError:
            if name in REQUIRED:
                raise InputError(f"{folder} is no transformer: {_missing(folder, name)}") from None
            stamps.append((0, 0))
        except OSError as error:
            raise InputError(f"cannot open {folder / name}: {fault_of(error)}") from None
        else:
            stamps.append((status.st_mtime_ns, status.st_size))
    return tuple(stamps)


def _missing(folder: Path, name: str) -> str:
    others = sorted(path.name for path in folder.iterdir())
    if name == WEIGHTS:
        if pickles := [other for other in others if other.endswith(PICKLES)]:
            return f"its weights {pickles[0]} are a pickle, which can run code. Save the model as {WEIGHTS}"
        if shards := [other for other in others if other.endswith(".safetensors")]:
            return f"its weights are in several files such as {shards[0]}, not in {WEIGHTS}. Save the model as one file"
    if name == TOKENIZER and "vocab.txt" in others:
        return f"it has vocab.txt and no {TOKENIZER}. Save its fast tokenizer (tokenizer.save) into the folder"
    return f"it has no {name}. The folder needs {', '.join(REQUIRED)}"


@lru_cache(MODELS_KEPT)
def _open(folder: Path, stamps: tuple[tuple[int, int], ...]) -> EncoderFiles:
    family = decoded(folder / CONFIG, Family).model_type
    if family not in FAMILIES:
        raise unsupported(folder / CONFIG, "model_type", family, f"one of {', '.join(FAMILIES)}")
    config = decoded(folder / CONFIG, EncoderConfig)
    _check(folder / CONFIG, config)
    positions = config.max_position_embeddings
    if config.model_type in OFFSET_FAMILIES:
        positions -= config.pad_token_id + 1
    max_tokens = tokens_of(folder, positions)
    return EncoderFiles(folder=folder, config=config, max_tokens=max_tokens, by_mean=is_by_mean(folder))


def tokens_of(folder: Path, positions: int) -> int:
    """Return the tokens of a window, with the special ones: `positions`, or fewer if sentence-transformers says so."""
    sentence = decoded(folder / SENTENCE, _Sentence) if (folder / SENTENCE).is_file() else _Sentence()
    max_tokens = min(positions, sentence.max_seq_length or positions)
    if max_tokens < MIN_TOKENS:
        raise InputError(f"{folder}: its windows have {max_tokens} tokens, expected {MIN_TOKENS} or more")
    return max_tokens


def decoded(path: Path, kind: type[Kind]) -> Kind:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise InputError(f"cannot open {path}: {fault_of(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        fault = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise InputError(f"{path} is not the configuration of a transformer: {fault}") from None


def unsupported(path: Path, name: str, value: Any, expected: str) -> InputError:
    return InputError(f"{path} has {name} {value!r}, which is not supported; expected {expected}")


def _check(path: Path, config: EncoderConfig) -> None:
    if config.hidden_act not in ACTIVATIONS:
        raise unsupported(path, "hidden_act", config.hidden_act, f"one of {', '.join(ACTIVATIONS)}")
    if config.position_embedding_type != "absolute":
        raise unsupported(path, "position_embedding_type", config.position_embedding_type, "absolute")
    if config.hidden_size % config.num_attention_heads:
        raise unsupported(
            path, "hidden_size", config.hidden_size, f"a multiple of its {config.num_attention_heads} heads"
        )
    if not 0 <= config.pad_token_id < config.vocab_size:
        raise unsupported(path, "pad_token_id", config.pad_token_id, f"a token below {config.vocab_size}")
    check_labels(path, config)


def check_labels(path: Path, config: ModelConfig) -> None:
    """InputError for labels of other outputs than 0, 1, ..."""
    if sorted(config.id2label) != sorted(map(str, range(len(config.id2label)))):
        raise unsupported(path, "id2label", config.id2label, "names of the labels 0, 1, ...")


def is_by_mean(folder: Path) -> bool:
    """Return whether the vector of a window is the mean of its tokens; else it is the first one. InputError for a
    folder of sentence-transformers with further layers, such as Dense, or another pooling."""
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
