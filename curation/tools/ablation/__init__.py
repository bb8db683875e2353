# SPDX-License-Identifier: Apache-2.0
"""Compares training texts by models that are trained on them."""
