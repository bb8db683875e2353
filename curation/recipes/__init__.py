# SPDX-License-Identifier: Apache-2.0
"""Recipes: their classes, YAML text, command-line settings, JSON Schema, and the recipe that `curate init` writes."""
