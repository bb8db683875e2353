# SPDX-License-Identifier: Apache-2.0
"""Verifies, reads, compares, moves and copies finished runs.

No module here runs the stages of a recipe on a corpus. Only for a moved run, the paths in `tokens/_meta/` and the
report are rewritten; everything else is only read.
"""
