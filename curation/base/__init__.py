# SPDX-License-Identifier: Apache-2.0
"""Code that all other packages import: errors, the engine contract, arrays, Parquet files, and system access."""
