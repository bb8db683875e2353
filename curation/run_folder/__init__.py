# SPDX-License-Identifier: Apache-2.0
"""The folder of a run: its lock, the names in it, and the schemas of its files. Nothing here computes.

It knows readers, stages and packing by their names only, and nothing of plans, tasks and phases.
"""
