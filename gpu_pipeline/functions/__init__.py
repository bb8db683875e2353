# SPDX-License-Identifier: Apache-2.0
"""Functions that kernels of several modules call on the device."""
