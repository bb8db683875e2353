# SPDX-License-Identifier: Apache-2.0
"""Trained models: fastText as arrays for kernels, transformers in PyTorch."""
