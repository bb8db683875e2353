# SPDX-License-Identifier: Apache-2.0
"""Training data from text: tokenizers, Megatron pairs, other output forms, splits, blends."""
