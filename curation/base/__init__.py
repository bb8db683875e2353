# SPDX-License-Identifier: Apache-2.0
"""What every room may import: errors, the contract of the engines, arrays, Parquet files, and the operating system."""
