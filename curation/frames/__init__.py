# SPDX-License-Identifier: Apache-2.0
"""Functions on data frames: `read`, a function per stage, and `apply` for any stage."""
