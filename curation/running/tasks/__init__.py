# SPDX-License-Identifier: Apache-2.0
"""Tasks of a run: jobs that processes share, done-records, and the board from which processes of an array take them.

The room does not know what a task computes.
"""
