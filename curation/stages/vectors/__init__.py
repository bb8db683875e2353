# SPDX-License-Identifier: Apache-2.0
"""`semantic_dedup` and `assign_clusters`: documents whose vectors are close."""
