# SPDX-License-Identifier: Apache-2.0
"""Writes recipes from the configurations of NeMo Curator, datatrove, dolma and data-juicer. No code of a file is run.
A table per tool (`curator.py`, `datatrove.py`, `dolma.py`, `datajuicer.py`) maps each entry to the parts of a recipe.
Every entry is checked as a separate recipe, so the written recipe always loads.
"""
