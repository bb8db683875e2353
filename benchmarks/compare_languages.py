# SPDX-License-Identifier: Apache-2.0
"""The rule set `fineweb2` against datatrove's filters with the configuration of FineWeb-2: equal verdicts per language.

    git clone https://github.com/huggingface/fineweb-2
    python -m benchmarks.compare_languages fineweb-2/configs [--words table] [--languages deu_Latn,rus_Cyrl]
        [--texts FILE]

Without `--words`, both sides divide words at white space: datatrove's word tokenizer is replaced by `str.split`. With
`scripts` or `table`, datatrove has its own tokenizer of the language, as FineWeb-2 does. Documents are drawn from lines
of texts of each language, by default from the messages of Django in `tests/data/corpus.jsonl.gz`. Each is judged as it
is and in three damaged forms. FILE has JSON Lines with `text` and `language`, such as `deu_Latn`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "tests" / "data" / "corpus.jsonl.gz"
CODES = {"de": "deu_Latn", "ru": "rus_Cyrl", "ar": "arb_Arab", "hi": "hin_Deva", "fr": "fra_Latn", "el": "ell_Grek",
         "ko": "kor_Hang", "fa": "fas_Arab", "vi": "vie_Latn", "ta": "tam_Taml", "es": "spa_Latn", "he": "heb_Hebr",
         "bn": "ben_Beng", "ka": "kat_Geor", "ja": "jpn_Jpan", "th": "tha_Thai", "zh_Hans": "cmn_Hani"}  # fmt: skip
DOCUMENTS = 100  # of a language


def damaged(text: str, draw: random.Random) -> list[str]:
    """A text cut short, with a repeat, and with numbers, marks or line ends in it."""
    words = text.split(" ")
    cut = " ".join(words[: draw.randrange(30, 80)])
    part = " ".join(words[: draw.randrange(2, 12)])
    repeated = f"{text} {' '.join([part] * draw.randrange(1, 10))}"
    kind = draw.randrange(4)
    if kind == 0:
        return [cut, repeated, " | ".join(words)]
    if kind == 1:
        return [cut, repeated, re.sub(r"\S+", lambda word: word[0] if draw.random() < 0.75 else "12", text)]
    if kind == 2:
        return [cut, repeated, "\n".join(" ".join(words[k : k + 4]) for k in range(0, len(words), 4))]
    return [cut, repeated, re.sub(r"\n", "...\n- ", text)]


def made(lines: Sequence[str], seed: int) -> list[str]:
    """Documents of some of the lines, in an order of their own, each with its damaged forms."""
    draw, found = random.Random(seed), []
    for _ in range(DOCUMENTS):
        chosen = draw.sample(lines, min(draw.randrange(4, 60), len(lines)))
        text = draw.choice(["\n", " ", "\n\n"]).join(chosen)
        found += [text, *damaged(text, draw)]
    return found


def lines_by_language(source: Path | None) -> dict[str, list[str]]:
    lines: dict[str, dict[str, None]] = {}
    for line in (gzip.decompress(CORPUS.read_bytes()) if source is None else source.read_bytes()).splitlines():
        record = json.loads(line)
        if source is not None or record["source"] == "django":
            own = lines.setdefault(CODES.get(record["language"], record["language"]), {})
            own |= dict.fromkeys(part for part in record["text"].splitlines() if part.strip())
    return {language: [*own] for language, own in lines.items()}


def ours(language: str, texts: Sequence[str], words: str) -> list[str]:
    """The reason for which each text is removed, "" for a kept one."""
    import pyarrow as pa

    from curation.base.engine import load_engine
    from curation.rules.decide import Rule
    from curation.stages import Filter

    engine = load_engine("cpu")
    table = pa.table({"text": pa.array(texts, pa.large_string()), "language": [language] * len(texts)})
    verdict = Filter(rules=[Rule(set="fineweb2")], words=words).apply(engine, engine.from_arrow(table)).verdict
    assert verdict is not None
    return ["" if number < 0 else verdict.reasons[number] for number in verdict.reason.tolist()]


def theirs(config: Mapping[str, Any], texts: Sequence[str], language: str) -> list[str]:
    """The same by datatrove, in its environment, with its tokenizer of the language; "" for `str.split`."""
    from datatrove.data import Document
    from datatrove.pipeline.filters import FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter
    from datatrove.utils import text as words
    from datatrove.utils.word_tokenizers import WordTokenizer

    class Spaces(WordTokenizer):
        def word_tokenize(self, text: str) -> list[str]:
            return text.split()

        def sent_tokenize(self, text: str) -> list[str]:
            return [text]

        def span_tokenize(self, text: str) -> list[tuple[int, int]]:
            return [(0, len(text))]

    tokenizer: Any = language or Spaces()
    assert words.split_into_words("a b.", Spaces()) == ["a", "b."]
    steps: list[Any] = [
        GopherRepetitionFilter(
            language=tokenizer, dup_para_frac=0, dup_line_char_frac=0, dup_para_char_frac=0,
            dup_line_frac=config["dup_line_frac"], top_n_grams=config["top_n_grams"], dup_n_grams=config["dup_n_grams"],
        ),
        FineWebQualityFilter(
            language=tokenizer, short_line_thr=999, char_duplicates_ratio=0.1, line_punct_thr=config["line_punct_thr"],
            new_line_ratio=config["new_line_ratio"],
        ),
        GopherQualityFilter(
            language=tokenizer, min_avg_word_length=config["min_avg_word_length"],
            max_avg_word_length=config["max_avg_word_length"], stop_words=config["stopwords"], min_stop_words=2,
            max_non_alpha_words_ratio=config["max_non_alpha_words_ratio"],
        ),
    ]  # fmt: skip

    def judge(text: str) -> str:
        for step in steps:
            verdict = step.filter(Document(text=text, id="0"))
            if verdict is not True:
                return f"{type(step).__name__}: {verdict[1] if isinstance(verdict, tuple) else verdict}"
        return ""

    return [judge(text) for text in texts]


def main() -> None:
    import yaml

    from benchmarks.bench_peers import DEFAULT_PEERS, ONE_THREAD, install

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", type=Path)
    parser.add_argument("--languages", default="deu_Latn,rus_Cyrl,arb_Arab,hin_Deva")
    parser.add_argument("--words", default="spaces", choices=("spaces", "scripts", "table"))
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--peers", type=Path, default=DEFAULT_PEERS)
    options = parser.parse_args()
    peer, at_spaces = ("datatrove", True) if options.words == "spaces" else ("datatrove-words", False)
    if problem := install(peer, options.peers):
        sys.exit(f"{peer} {problem}")
    lines = lines_by_language(options.texts)
    for number, language in enumerate(options.languages.split(",")):
        texts = made(lines[language], number)
        config = yaml.safe_load((options.configs / f"{language}.yml").read_text("utf-8"))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "in.json"
            path.write_text(json.dumps([config, texts, "" if at_spaces else language]), "utf-8")
            command = [str(options.peers / peer / "bin" / "python"), str(Path(__file__)), "--peer", str(path)]
            subprocess.run(command, check=True, env=os.environ | ONE_THREAD)
            there = json.loads(path.with_suffix(".out").read_text("utf-8"))
        here = ours(language, texts, options.words)
        differing = Counter((a, b) for a, b in zip(here, there, strict=True) if bool(a) != bool(b))
        equal = len(texts) - differing.total()
        removed = sum(map(bool, here[::4])), sum(map(bool, here)) - sum(map(bool, here[::4]))
        of = len(texts) // 4, len(texts) * 3 // 4
        print(f"{language}: {equal} of {len(texts)} verdicts equal; removed {removed[0]} of {of[0]} documents and")
        print(f"  {removed[1]} of {of[1]} damaged ones here, {sum(map(bool, there))} in all there")
        for (a, b), count in differing.most_common():
            print(f"  {count:5,}  {a or 'kept'} here, {b or 'kept'} there")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        given = Path(sys.argv[2])
        given.with_suffix(".out").write_text(json.dumps(theirs(*json.loads(given.read_text("utf-8")))), "utf-8")
    else:
        main()
