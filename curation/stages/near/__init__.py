# SPDX-License-Identifier: Apache-2.0
"""`fuzzy_dedup` and `ngram_dedup`: documents that share many n-grams."""
