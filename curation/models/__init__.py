# SPDX-License-Identifier: Apache-2.0
"""Trained models as arrays for kernels."""
