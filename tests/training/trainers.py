# SPDX-License-Identifier: Apache-2.0
"""Trainers, the form that each reads, and how this was checked: the table in docs/trainers.md.

`python -m tests.training.trainers` writes the table. A new trainer is a line in CASES, and a test of its reader.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "trainers.md"
HOW = ("by the reader itself", "recorded", "read only")
HEAD = "| trainer | version | `output` | checked | test |\n|---|---|---|---|---|\n"
HERE = "tests/training/test_trainers.py"


class Case(NamedTuple):
    """A trainer that reads an output of a run.

    trainer  name of the trainer, or of the library that reads for it, and its class
    version  version of `package`, or the version or commit whose source was read
    output   settings of `output` in a recipe, as the page shows them
    how      one of HOW
    test     file and name of the test that runs the reader, or compares with what was recorded; "" for `read only`
    package  distribution with the reader, which the Makefile installs in `version`; "" for none
    """

    trainer: str
    version: str
    output: dict[str, Any]
    how: str
    test: str = ""
    package: str = ""

    def row(self) -> str:
        """Return the row of the table."""
        test = f"`{self.test.removeprefix('tests/')}`" if self.test else ""
        return f"| {self.trainer} | {self.version} | `{yaml_flow(self.output)}` | {self.how} | {test} |"


MEGATRON = {"formats": ["megatron"]}
DATATROVE = {"formats": ["token_shards"], "token_shards": {"layout": "datatrove"}}
NANOGPT = {"formats": ["token_shards"], "token_shards": {"layout": "nanogpt"}}
LITDATA = {"formats": ["litdata"], "litdata": {"length": 2049}}
MDS = {"formats": ["mds"], "mds": {"length": 2048}}
CASES = [
    Case("Megatron-LM, `GPTDataset` and `BlendedDataset` of megatron-core", "0.16.1", MEGATRON, HOW[0],
         "tests/training/test_megatron_core.py::test_a_blended_data_set_from_blend_txt", "megatron-core"),
    Case("the same, a blend per split", "0.16.1", MEGATRON | {"splits": {"train": 0.98, "valid": 0.01, "test": 0.01}},
         HOW[0], "tests/training/test_megatron_core.py::test_data_sets_of_each_split_from_per_split_json",
         "megatron-core"),
    Case("Megatron Bridge", "067f987", MEGATRON, HOW[2]),
    Case("OLMo-core, `NumpyFSLDataset` and `NumpyPackedFSLDataset`", "3.0.0", {"formats": ["token_shards"]}, HOW[0],
         f"{HERE}::test_olmo_core_reads_documents", "ai2-olmo-core"),
    Case("datatrove, `DatatroveFolderDataset` with `return_positions=True`", "0.10.1", DATATROVE, HOW[0],
         f"{HERE}::test_datatrove_reads_ids_and_positions", "datatrove"),
    Case("nanotron, through datatrove", "2411b02", DATATROVE, HOW[2]),
    Case("AutoModel, `NanogptDataset` with `align_to_bos=True`", "0.7.0", NANOGPT, HOW[0],
         f"{HERE}::test_automodel_reads_from_the_starts_of_documents", "nemo-automodel"),
    Case("the same, ids of 4 bytes", "0.7.0",
         NANOGPT | {"token_shards": {"layout": "nanogpt", "dtype": "uint32"}}, HOW[0],
         f"{HERE}::test_automodel_reads_ids_of_four_bytes", "nemo-automodel"),
    Case("modded-nanogpt, `train_gpt.py`", "0016a3c", NANOGPT, HOW[1],
         f"{HERE}::test_files_are_those_that_modded_nanogpt_expects"),
    Case("llm.c, `llmc/dataloader.h`", "077f9bd", NANOGPT, HOW[1], f"{HERE}::test_files_are_those_that_llm_c_expects"),
    Case("litdata, `StreamingDataset` with `TokensLoader`", "0.2.76", LITDATA, HOW[0],
         f"{HERE}::test_litdata_reads_rows", "litdata"),
    Case("litgpt, `LitData` with `max_seq_length` 2048, through litdata", "0.5.13", LITDATA, HOW[2]),
    Case("MosaicML Streaming, `StreamingDataset`", "0.13.0", MDS, HOW[0],
         "tests/tokens/test_mds.py::test_the_package_reads_and_writes_the_same", "mosaicml-streaming"),
    Case("LLM Foundry, `max_seq_len` 2048, through MosaicML Streaming", "0.22.0", MDS, HOW[2]),
    Case("nanochat, `nanochat/dataset.py`", "92d63d4",
         {"shuffle": True, "documents": {"shuffle": True}, "splits": {"train": 0.99, "valid": 0.01}}, HOW[1],
         "tests/running/test_document_shards.py"
         "::test_nanochat_reads_each_document_once_and_valid_alone_as_validation"),
    Case("torchtitan, texts by `datasets`", "0.3.0", {"cleaned": "jsonl"}, HOW[2]),
    Case("`datasets`, streamed", "5.1 and later", {"cleaned": "jsonl.zst"}, HOW[0],
         "tests/running/test_exports.py::test_datasets_streams_compressed_lines"),
]  # fmt: skip


def yaml_flow(settings: Any) -> str:
    """Return settings as YAML on one line, without the outer braces."""

    def flow(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{name}: {flow(inner)}" for name, inner in value.items()) + "}"
        return f"[{', '.join(map(flow, value))}]" if isinstance(value, list) else json.dumps(value).strip('"')

    return flow(settings)[1:-1]


def table() -> str:
    """Return the table of the page."""
    return HEAD + "".join(f"{case.row()}\n" for case in CASES)


def with_table(page: str) -> str:
    """Return the page with its table replaced."""
    start = page.index(HEAD)
    return page[:start] + table() + page[page.index("\n\n", start) + 1 :]


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")
