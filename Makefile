# SPDX-License-Identifier: Apache-2.0
# `make` alone prints what there is. Tools run from VENV; `demo` and `test` are the README's two commands.
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OUT := gpu-check

.DEFAULT_GOAL := help
.PHONY: help demo test fix check bench bench-peers gpu-check torture

help:  ## print this
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo:  ## set up, then curate a few megabytes of real text
	python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/curate demo

test:  ## set up, then run all tests that this machine can run
	python3 -m venv .venv && .venv/bin/pip install -e '.[test,ptx,hub,warc,distributed]' && .venv/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder

fix: $(READY)  ## format, and mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

check: $(READY)  ## lint, format, types, spelling: what the commit hooks run
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/codespell

bench: $(READY)  ## run the benchmarks on this machine
	$(BIN)/python -m benchmarks.bench

bench-peers: $(READY)  ## the same beside other tools, each installed into an environment of its own
	$(BIN)/python -m benchmarks.bench_peers

gpu-check: $(READY)  ## everything a GPU machine can prove, into the folder OUT; goes on after failures
	PYTHON=$(BIN)/python bash benchmarks/gpu_check.sh $(OUT)

torture: $(READY)  ## 10,000 damaged inputs, and runs killed at 200 random moments
	TORTURE=10000 $(BIN)/pytest tests/fuzz tests/run

$(READY): pyproject.toml
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet -e '.[test,ptx,hub,warc,distributed,dev]'
	touch $@
