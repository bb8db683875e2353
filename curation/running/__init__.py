# SPDX-License-Identifier: Apache-2.0
"""Code that runs a recipe, from its arguments to its report: resources, the loop over the phases, and job arrays.

The modules of this level read and compute no documents; `phases` does. Only the command line and the library call them.
"""
