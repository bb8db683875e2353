# SPDX-License-Identifier: Apache-2.0
"""Finished runs: verified, read, compared, moved and copied.

Nothing here runs a stage. A moved run gets the paths in its `tokens/_meta/` and its report rewritten; all else is read.
"""
