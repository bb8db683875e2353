# SPDX-License-Identifier: Apache-2.0
"""Names that do not exist: one line each, with the nearest ones that do, on the command line."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from curation.cli import main


@pytest.mark.parametrize(
    ("name", "content", "options", "told"),
    [
        ("a.jsonl", '{"id": 1, "label": "x"}\n', "", "a.jsonl has none of the columns text, content, body"),
        ("a.csv", "id,label\n1,x\n", "", "a.csv has none of the columns text, content, body"),
        ("a.jsonl", '{"data": [{"text": "x"}]}\n', "", "document with text; it has ['data']. Set text_column"),
        ("a.jsonl", '{"id": 1, "text": null}\n', "", "it has ['id', 'text'], 'text' without a string. Set text_column"),
        ("a.jsonl", '{"a": 1}\n{"b": 1}\n', ", text_column: c", "'c' in the first 2 records. They have ['a', 'b']"),
        ("a.jsonl", '{"body": "x"}\n', ", text_column: txt", "'txt' in the first 1 record. They have ['body']"),
        ("a.jsonl", '{"text": "x"}\n', ", min_bytes: 5", "input 'a' gave 1 bytes of text, min_bytes asks for 5. Add"),
    ],
)
def test_inputs_without_what_is_asked_of_them(
    name: str, content: str, options: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / name).write_text(content)
    (tmp_path / "recipe.yaml").write_text(
        f"input: [{{path: '{tmp_path / name}'{options}}}]\nstages: []\noutput: {{formats: []}}"
    )
    arguments = ["run", str(tmp_path / "recipe.yaml"), "--engine", "cpu", "--output", str(tmp_path / "out")]
    assert main(arguments) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("curate: ")]
    assert len(errors) == 1 and told in errors[0]


def test_a_recipe_of_the_package_runs_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    texts = [f"document {number} " + "with enough words to stay " * 12 for number in range(30)]
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in [*texts, *texts[:5], "short"]))
    out = tmp_path / "out"
    arguments = ["--input", str(tmp_path / "a.jsonl"), "--output", str(out), "--engine", "cpu"]
    arguments += ["--set", "output.blocks.length=512", "--set", "output.blocks.shard_blocks=2"]
    assert main(["run", "news_wiki_web", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "[read] docs=36  [exact_dedup] kept=31 (86%)  [filter] kept=30 (83%)  [tokens] total=" in shown
    suffix, shape = (".pt", "torch.Size([{}, 512])") if find_spec("torch") else (".npy", "({}, 512)")
    said = [
        "Original Docs: 36",
        "Duplicates Removed: 5",
        "Short Docs Removed (<50 words): 1",
        "Final Docs Kept: 30",
        f"Final Dataset Size: {sum(len(text.strip()) for text in texts) / 1e6:.2f} MB",
        f"Cleaned data saved to: {out}/cleaned/clean_dataset.jsonl",
        *(
            f"Saved shard {number} to {out}/blocks/shard_{number}{suffix}: shape {shape.format(rows)}"
            for number, rows in enumerate((2, 1))
        ),
    ]
    assert "\n".join(said) in shown
    assert sorted(path.name for path in (out / "blocks").iterdir())[1:] == [f"shard_{n}{suffix}" for n in (0, 1)]
    assert main(["run", "news_wiki_web", *arguments]) == 0
    assert "already complete" in capsys.readouterr().out
