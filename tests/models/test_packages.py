# SPDX-License-Identifier: Apache-2.0
"""`embed` with the model of an installed package, of which nothing is run."""

from pathlib import Path

import msgspec
import pandas as pd
import pytest

import curation
from curation.models.packages import model_folder
from tests.models.tiny_files import write_static

TEXTS = pd.Series(["a good text", "bad"])


def install(site: Path, name: str, *folders: str) -> Path:
    """A package with models in these folders. Its import fails."""
    module = site / name.replace("-", "_")
    module.mkdir(parents=True)
    (module / "__init__.py").write_text("raise SystemExit('imported')")
    for folder in folders:
        (module / folder).parent.mkdir(parents=True, exist_ok=True)
        write_static(module / folder)
    (site / f"{module.name}-1.0.dist-info").mkdir()
    (site / f"{module.name}-1.0.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    files = [path.relative_to(site).as_posix() for path in module.rglob("*.*")]
    (site / f"{module.name}-1.0.dist-info/RECORD").write_text("".join(f"{path},,\n" for path in files))
    return module


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path / "site")
    model_folder.cache_clear()
    return tmp_path / "site"


def test_the_model_of_a_package_is_that_of_its_folder(site: Path):
    folder = install(site, "tiny-vectors", "model") / "model"
    found = curation.embed(TEXTS, "package:tiny-vectors", column="v")
    assert found["v"].tolist() == curation.embed(TEXTS, folder, column="v")["v"].tolist()
    stage, plain = curation.Embed(model="package:tiny-vectors"), curation.Embed(model=str(folder))
    assert stage.column_facts("embedding") == plain.column_facts("embedding")
    assert {Path(name).name: digest for name, digest in stage.files().items()} == {
        Path(name).name: digest for name, digest in plain.files().items()
    }
    assert "package:tiny-vectors/model.safetensors" in stage.files()  # wherever the environment is
    assert msgspec.to_builtins(stage)["model"] == "package:tiny-vectors"


def test_other_files_are_another_identity(site: Path):
    folder = install(site, "tiny-vectors", "model") / "model"
    before = curation.Embed(model="package:tiny_vectors").files()
    (folder / "config.json").write_text('{"model_type": "model2vec", "seed": 2}')
    after = curation.Embed(model="package:tiny_vectors").files()
    assert before.keys() == after.keys() and before != after


WRONG = {
    "none-such": "the package 'none-such' is not installed in this environment. Models are never downloaded: pip ",
    "": "the package '' is not installed in this environment.",
    "tiny-empty": "the package tiny-empty 1.0 has no model: no folder with tokenizer.json and one of model.saf",
    "tiny-two": "the package tiny-two 1.0 has 2 models. Give package:tiny-two/tiny_two/a, package:tiny-two/tiny_two/b",
    "tiny-two/c": "tiny-two 1.0 has no model 'c'. Give package:tiny-two/tiny_two/a, package:tiny-two/tiny_two/b",
    "tiny-two/../x": "tiny-two 1.0 has no model '../x'. Give package:",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_package_without_one_model_is_one_message(name: str, site: Path):
    install(site, "tiny-empty")
    install(site, "tiny-two", "a", "b")
    with pytest.raises(curation.InputError) as raised:
        curation.Embed(model=f"package:{name}")
    assert str(raised.value).startswith("model: the package ") and WRONG[name] in str(raised.value)


def test_one_of_several_models_is_named(site: Path):
    module = install(site, "tiny-two", "a", "b/c")
    assert model_folder("package:tiny-two/tiny_two/b/c") == str(module / "b/c")
    assert model_folder("some/folder") == "some/folder"
