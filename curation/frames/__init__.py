# SPDX-License-Identifier: Apache-2.0
"""Functions on data frames: `read`, one per stage, and `apply` for any stage."""
