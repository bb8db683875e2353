# SPDX-License-Identifier: Apache-2.0
"""Finished runs: verified, read, compared, moved and copied.

Nothing here runs a stage or writes an output of a run.
"""
