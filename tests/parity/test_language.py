# SPDX-License-Identifier: Apache-2.0
"""`classify`: every engine equals a slow fastText in plain Python on models of all shapes, and fastText itself on
`lid.176.ftz`, the language model of the package."""

import random
import struct
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.base.contract import TEXT
from curation.base.errors import InputError
from curation.models.fasttext import LANGUAGE_MODEL, Classifier, load_classifier
from tests.conftest import frame_of, hidden_nulls
from tests.corpus import NASTY, document_lists, real_documents, real_records
from tests.oracle import fasttext_reference as reference
from tests.oracle.fasttext_reference import WORDS, model_of

MILLIONTHS = 2  # what our rounding and that of the oracle's floats may come to


TREE = {"loss": reference.HIERARCHICAL}
MODELS = {
    "words": model_of(),
    "words, tree": model_of(**TREE),
    "one label": model_of(1),
    "one label, tree": model_of(1, **TREE),
    "two labels, tree": model_of(2, **TREE),
    "many labels, tree": model_of(300, **TREE),
    "wide": model_of(width=300),
    "one dimension": model_of(width=1, **TREE),
    "characters": model_of(buckets=1000, low=2, high=4, **TREE),
    "wide characters": model_of(width=40, buckets=300, low=1, high=3),
    "single characters": model_of(buckets=97, low=1, high=1),
    "no least length": model_of(buckets=64, low=0, high=3),
    "one bucket": model_of(buckets=1, low=3, high=6, **TREE),
    "word pairs": model_of(buckets=1000, word_ngrams=2),
    "word n-grams": model_of(buckets=500, word_ngrams=5, low=3, high=3, **TREE),
    "pruned": model_of(buckets=1000, rows=8, low=2, high=4, pruned={7: 3, 999: 0, 32: 1, 31: 2, 500: 7}, **TREE),
    "pruned to nothing": model_of(buckets=1000, rows=1, low=2, high=4, word_ngrams=2, pruned={}),
    "dense pruning": model_of(
        buckets=100, rows=60, low=1, high=5, word_ngrams=3, width=7, pruned={k: (k * 7) % 60 for k in range(1, 100, 3)}
    ),
}


@pytest.fixture(scope="session")
def load(tmp_path_factory):
    """Writes a model to a file and loads it."""
    folder = tmp_path_factory.mktemp("models")

    def load(model: reference.Model, **settings) -> Classifier:
        data = reference.as_bytes(model, **settings)
        path = folder / f"{len(list(folder.iterdir()))}.bin"
        path.write_bytes(data)
        return load_classifier(str(path))

    return load


@pytest.fixture(scope="session")
def language_model() -> Classifier:
    return load_classifier("")


def classified(engine, model: Classifier, texts: list[str | None], max_characters: int = 0) -> list:
    label, score = engine.classify(frame_of(engine, texts)[TEXT], model, max_characters)
    assert (label.dtype, label.shape) == (np.int32, (len(texts),))
    assert (score.dtype, score.shape) == (np.int64, (len(texts),))
    return [(model.labels[k], p) if k >= 0 else None for k, p in zip(label.tolist(), score.tolist(), strict=True)]


def assert_alike(actual: list, expected: list, millionths: int = MILLIONTHS) -> None:
    """The same labels, and probabilities that differ by rounding at most."""
    assert [found and found[0] for found in actual] == [wanted and wanted[0] for wanted in expected]
    for found, wanted in zip(actual, expected, strict=True):
        assert found is None or abs(found[1] - wanted[1] * 1e6) <= millionths


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("quantised", [False, True], ids=["bin", "ftz"])
def test_all_shapes_of_models(engine, load, name, quantised):
    model = MODELS[name]
    if model.pruned is not None and not quantised:
        pytest.skip("fastText prunes only what it quantises")
    texts = [text for text in NASTY if len(text) < 3000]
    actual = classified(engine, load(model, quantised=quantised), texts)
    assert_alike(actual, [reference.predict(model, text) for text in texts])


@pytest.mark.parametrize("name", MODELS)
def test_the_probability_of_a_wanted_label(engine, load, name):
    """Equals the oracle's, also for labels that the search for the likeliest one skips."""
    model = MODELS[name]
    classifier = load(model, quantised=model.pruned is not None)
    texts = [text for text in NASTY if len(text) < 300][::5]
    last = len(model.labels) - 1
    for label in {0, last // 2, last}:
        name = model.labels[label][0].decode().removeprefix("__label__")
        found = classified(engine, classifier.scoring(name), texts)
        scores = [reference.score_of(model, text, label) for text in texts]
        assert_alike(found, [None if score is None else (name, score) for score in scores])


def test_a_model_for_a_label_is_made_once(load):
    """The GPU engine keeps a copy of the tables of each model on the device."""
    model = load(MODELS["words, tree"])
    assert model.scoring("l0") is model.scoring("l0") is not model.scoring("l1")


def test_a_label_that_the_model_does_not_have(load):
    with pytest.raises(ValueError, match="no label 'l' in the model"):
        load(MODELS["words"]).scoring("l")


@pytest.mark.parametrize("name", MODELS)
def test_the_oracle_equals_fasttext(tmp_path, name):
    package = pytest.importorskip("fasttext", reason="fastText is not installed")
    model = MODELS[name]
    path = tmp_path / "model.bin"
    path.write_bytes(reference.as_bytes(model, quantised=model.pruned is not None))
    known = package.load_model(str(path))
    for text in (text for text in NASTY if len(text) < 300):  # its float32 sums of thousands of rows drift by 1e-4
        found = reference.predict_by_package(known, text)
        label, score = reference.predict(model, text)
        assert label == found[0], text
        assert score == pytest.approx(found[1], abs=1e-5), text


@pytest.mark.parametrize("name", ["characters", "word n-grams", "dense pruning"])
@given(texts=document_lists())
def test_generated_documents(engine, load, name, texts):
    model = MODELS[name]
    classifier = load(model, quantised=model.pruned is not None)
    assert_alike(classified(engine, classifier, texts), [reference.predict(model, text) for text in texts])


def test_old_models_have_no_character_ngrams(engine, load):
    model = MODELS["characters"]
    expected = [reference.predict(model._replace(high=0), text) for text in NASTY[:40]]
    assert_alike(classified(engine, load(model, version=11), NASTY[:40]), expected)


def test_of_equal_labels_the_last_wins(engine, load):
    equal = model_of(4)._replace(output=[[1.0] * 6] * 4)
    assert classified(engine, load(equal), ["a"]) == [("l3", 250_010)]
    level = model_of(2, **TREE)._replace(output=[[0.0] * 6] * 2)
    assert classified(engine, load(level), ["a"]) == [("l0", 500_010)]  # the left child is the rarer label


def test_a_text_without_anything_known_has_no_label(engine, load):
    model = MODELS["words"]._replace(words=WORDS[1:], rows=MODELS["words"].rows[1:])
    assert classified(engine, load(model), ["", None, "unknown", "__label__l1 __label__x", "the"])[:4] == [None] * 4


def test_labels_in_a_text_are_no_words(engine, load):
    model = load(MODELS["characters"])
    plain, labelled = classified(engine, model, ["some text", "__label__l1 some __label__x __label__ text"])
    assert plain == labelled
    assert classified(engine, model, ["some __label text"]) != [plain]


def test_a_text_ends_with_its_first_end_mark(engine, load):
    model = load(MODELS["characters"])
    cut, whole, glued = classified(engine, model, ["one </s> two", "one", "one x</s> two"])
    assert cut == whole != glued


def test_line_ends_are_spaces(engine, load):
    model = load(MODELS["word n-grams"])
    spaces = ["a b\nc\r\nd\te\vf\fg\0h \n", "a b c d e f g h"]
    assert len(set(classified(engine, model, spaces))) == 1


@pytest.mark.parametrize("max_characters", [1, 2, 7, 40])
def test_prefixes_count_code_points(engine, load, max_characters):
    """From the first token: the white space of fastText at the start is not counted."""
    texts = [f"{spaces}{text}" for text in NASTY if len(text) < 3000 for spaces in ("", reference.SPACES * 6)]
    model = load(MODELS["characters"])
    shortened = [text.lstrip(reference.SPACES)[:max_characters] for text in texts]
    assert classified(engine, model, texts, max_characters) == classified(engine, model, shortened)


def assert_spread(engine, texts: list[str | None], windows: int, max_characters: int) -> None:
    found = engine.spread_windows(frame_of(engine, texts)[TEXT], windows, max_characters)
    shown = engine.to_arrow(engine.with_columns(frame_of(engine, texts), {TEXT: found}))[TEXT].to_pylist()
    expected = [None if text is None else reference.windows_of(text, windows, max_characters) for text in texts]
    assert shown == expected


@pytest.mark.parametrize(("windows", "max_characters"), [(2, 2), (2, 7), (3, 10), (5, 500), (40, 41)])
def test_windows_are_spread_over_texts(engine, windows, max_characters):
    texts = [f"{spaces}{text}" for text in NASTY if len(text) < 3000 for spaces in ("", reference.SPACES * 6)]
    assert_spread(engine, [*texts, None], windows, max_characters)
    assert_spread(engine, [], windows, max_characters)


def test_windows_by_hand(engine):
    """Four characters from the middles of `menu is here` and `there ends..`, without the rest of `is`; short texts are
    whole."""
    frame = frame_of(engine, ["menu is herethere ends..", " \nbbbb bbbb", "bbbbbbbbb"])
    found = engine.spread_windows(frame[TEXT], 2, 9)
    assert engine.to_arrow(engine.with_columns(frame, {TEXT: found}))[TEXT].to_pylist() == [
        *("he ends ", "bbbb bbbb ", "bbbbbbbbb ")
    ]


@given(texts=document_lists(), windows=st.integers(2, 5), max_characters=st.integers(5, 30))
def test_windows_of_generated_documents(engine, texts, windows, max_characters):
    assert_spread(engine, texts, windows, max_characters)


def test_known_words_change_no_bit(engine, load, monkeypatch):
    """A table of 2 slots, words of every size up to one more than its keys, and again from a full table."""
    monkeypatch.setattr("cpu_fallback.fasttext.SLOTS", 2)
    words = [letter * size for size in range(1, 26) for letter in ("a", "é", "漢")] + [
        "the",
        "</s",
        "__label__l1",
        "of",
    ]
    texts = [" ".join(words[k:] + words[:k]) for k in range(0, len(words), 5)] * 2
    for name in ("characters", "wide characters", "word pairs"):
        model = load(MODELS[name])
        expected = [reference.predict(MODELS[name], text) for text in texts]
        for _ in range(2):
            assert_alike(classified(engine, model, texts), expected)


def test_nulls_are_empty_texts(engine, load):
    model = load(MODELS["characters"])
    empty, *nulls = classified(engine, model, ["", None, None])
    assert nulls == [empty, empty]
    label, score = engine.classify(engine.from_arrow(hidden_nulls())[TEXT], model, 0)
    assert (model.labels[label[1]], score[1]) == empty


def test_no_rows(engine, load):
    assert classified(engine, load(MODELS["words"]), []) == []


def test_sliced_frames(engine, load):
    texts = ["the of", None, "漢字 a", "", "w1 w2 b"]
    model = load(MODELS["characters"])
    label, score = engine.classify(frame_of(engine, texts).iloc[2:][TEXT], model, 0)
    assert [(model.labels[k], p) for k, p in zip(label, score, strict=True)] == classified(engine, model, texts[2:])


# lid.176.ftz


def test_language_model_has_its_labels(language_model):
    assert len(language_model.labels) == 176
    assert {"en", "de", "zh", "ar", "an", "ceb"} <= set(language_model.labels)


def test_language_model_as_plain_python_reads_it(engine, language_model):
    path = LANGUAGE_MODEL
    model = reference.read(path)
    texts = [text for text in NASTY if len(text) < 3000] + real_documents(10)
    expected = [reference.predict(model, text[:1000]) for text in texts]
    assert_alike(classified(engine, language_model, texts, 1000), expected)


@pytest.fixture(scope="session")
def predict():
    """fastText's own prediction, or skips."""
    package = pytest.importorskip("fasttext", reason="fastText is not installed")
    model = package.load_model(str(LANGUAGE_MODEL))

    return partial(reference.predict_by_package, model)


def test_fasttext_gives_the_same_for_real_documents(engine, language_model, predict):
    texts = [piece for text in real_documents() for piece in (text, text[: len(text) // 2], text[-200:])]
    actual = classified(engine, language_model, texts, 1000)
    assert_alike(actual, [predict(text.lstrip(reference.SPACES)[:1000]) for text in texts], 10)


def test_fasttext_gives_the_same_for_short_texts(engine, language_model, predict):
    """Short texts have the smallest leads, and any kind of word."""
    long = " ".join(text for text in [*NASTY, *real_documents(100)] if len(text) < 3000)
    generator = random.Random(3)
    starts = [(generator.randrange(len(long)), generator.randrange(60)) for _ in range(5000)]
    texts = [long[start : start + length] for start, length in starts]
    assert_alike(classified(engine, language_model, texts), [predict(text) for text in texts], 10)


def test_real_documents_have_their_language(engine, language_model):
    """All but one of the three in Asturian, which is near to Spanish."""
    records = real_records()
    found = classified(engine, language_model, [each["text"] for each in records], 1000)
    labels = [each["language"].removesuffix("_Hans") for each in records]
    wrong = [(each["id"], got) for each, got, label in zip(records, found, labels, strict=True) if got[0] != label]
    assert wrong == [("django/admin/ast/0", ("es", 472_952))] and len(set(labels)) == 22


# Files that are no model


def test_every_cut_file_is_refused(tmp_path):
    path = tmp_path / "cut.ftz"
    data = reference.as_bytes(MODELS["pruned"], quantised=True)
    for size in [*range(500), *range(500, len(data), 997), len(data) - 1]:
        path = tmp_path / f"{size}.ftz"
        path.write_bytes(data[:size])
        with pytest.raises(InputError, match=str(path)):
            load_classifier(str(path))


def changed(model: reference.Model, **settings) -> bytes:
    return reference.as_bytes(model._replace(**settings))


def quantised(height: int, width: int, parts: tuple[int, int, int]) -> bytes:
    """A model of one row of one part, whose quantised matrix says something else of itself."""
    made = reference.as_bytes(model_of(1, rows=1, width=2, buckets=9, pruned={}), quantised=True)
    head, size = struct.pack("<?qqi", True, len(WORDS) + 1, 2, len(WORDS) + 1), struct.pack("<4i", 2, 1, 2, 2)
    assert made.count(head) == 1
    changed = made.replace(head, struct.pack("<?qqi", True, height, width, len(WORDS) + 1))
    return changed.replace(size, struct.pack("<4i", width, *parts))


BROKEN = {
    "not a model": (b"{}" * 40, "starts with"),
    "of a later version": (reference.as_bytes(MODELS["words"], version=13), "version 13"),
    "word vectors": (reference.as_bytes(MODELS["words"], kind=2), "no labels"),
    "another loss": (changed(MODELS["words"], loss=4), "one-vs-all"),
    "an unknown loss": (changed(MODELS["words"], loss=9), "its loss is 9"),
    "without labels": (changed(MODELS["words"], labels=[]), "0 labels"),
    "without buckets": (changed(MODELS["words"], high=3), "bucket 0"),
    "too few rows": (changed(MODELS["words"], rows=MODELS["words"].rows[:-1]), "input matrix"),
    "too few outputs": (changed(MODELS["words"], output=MODELS["words"].output[:-1]), "output matrix"),
    "a bucket out of bounds": (changed(MODELS["words"], pruned={0: 0}, buckets=0), "buckets outside"),
    "a row out of bounds": (changed(MODELS["words"], pruned={1: 8}, buckets=9), "input matrix"),
    "a negative row": (changed(MODELS["words"], pruned={1: -1}, buckets=9), "negative numbers"),
    "negative counts": (changed(MODELS["words, tree"], labels=[(b"a", -1)] * 5), "counts"),
    "too many word n-grams": (
        changed(MODELS["words"], word_ngrams=101, buckets=1),
        "wordNgrams 101, expected at most 100",
    ),
    "long character n-grams": (changed(MODELS["words"], high=31, buckets=1), "maxn 31, expected at most 30"),
    "too many buckets": (
        changed(MODELS["words"], pruned={1: 0}, buckets=100_000_001),
        "prunes 100000001 buckets",
    ),
    "rows of nothing": (
        changed(MODELS["words"]).replace(struct.pack("<qq", 11, 6), struct.pack("<qq", 2**62, 0)),
        "a matrix of 4611686018427387904 rows of 0",
    ),
    "quantised rows of nothing": (quantised(2**62, 0, (1, 2, 2)), "a matrix of 4611686018427387904 rows of 0"),
    "a part less than nothing": (
        quantised(12, 2, (2, 3, -1)),
        "rows of 2 weights do not match 2 parts of 3, the last of -1",
    ),
    "a part that is too wide": (quantised(12, 65, (1, 65, 65)), "weights do not match 1 parts of 65, the last of 65"),
    "not finite": (changed(MODELS["words"], output=[[float("nan")] * 6] * 5), "not finite"),
    "too large": (changed(MODELS["words"], output=[[1e9] * 6] * 5, rows=[[1e9] * 6] * 11), "too large"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused(tmp_path, name):
    data, message = BROKEN[name]
    path = tmp_path / "model.bin"
    path.write_bytes(data)
    with pytest.raises(InputError, match=message):
        load_classifier(str(path))


@pytest.mark.parametrize("row", [0, 4])
def test_weights_that_are_not_finite_are_found_in_every_piece(tmp_path, monkeypatch, row):
    monkeypatch.setattr("curation.models.fasttext.CHUNK_ROWS", 2)
    output = [[float("nan") if k == row else 1.0] * 6 for k in range(5)]
    (tmp_path / "model.bin").write_bytes(changed(MODELS["words"], output=output))
    with pytest.raises(InputError, match="not finite"):
        load_classifier(str(tmp_path / "model.bin"))


def test_missing_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file or folder"):
        load_classifier(str(tmp_path / "absent.bin"))
    with pytest.raises(InputError, match="it is a folder, expected a file"):
        load_classifier(str(tmp_path))


def test_a_damaged_model_of_the_package_is_refused(monkeypatch, tmp_path):
    damaged = tmp_path / "lid.176.ftz"
    damaged.write_bytes(LANGUAGE_MODEL.read_bytes() + b"\0")
    monkeypatch.setattr("curation.models.fasttext.LANGUAGE_MODEL", damaged)
    with pytest.raises(InputError, match=r"is damaged: its SHA-256 is \w+\. Install gpu-pipeline again"):
        load_classifier("")
