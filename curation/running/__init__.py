# SPDX-License-Identifier: Apache-2.0
"""A run from its arguments to its report: resources, the loop over the phases, and processes of an array.

Nothing here reads a document or computes: phases do. Only the command line and the library call it.
"""
