# SPDX-License-Identifier: Apache-2.0
"""The CUDA kernels, and their launches. No module here imports cuDF or CuPy."""
