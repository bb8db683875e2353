# SPDX-License-Identifier: Apache-2.0
"""`exact_dedup`: documents of equal texts."""
