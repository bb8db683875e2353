# SPDX-License-Identifier: Apache-2.0
"""Tasks of a run: the boards from which the processes of an array take tasks, and the deletion of files.

This package does not know what a task computes.
"""
