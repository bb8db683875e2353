# SPDX-License-Identifier: Apache-2.0
"""Recipes from the configurations of NeMo Curator, datatrove, dolma and data-juicer. Nothing of a file is run.

A table per tool says what the recipe has for each entry (`curator.py`, `datatrove.py`, `dolma.py`, `datajuicer.py`).
Every entry is checked as a recipe of its own, so that the written recipe always loads.
"""
