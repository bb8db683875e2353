# SPDX-License-Identifier: Apache-2.0
"""Stages that find equal texts: documents, lines, spans of bytes, and n-grams of evaluation texts."""
