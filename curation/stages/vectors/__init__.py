# SPDX-License-Identifier: Apache-2.0
"""`semantic_dedup` and `assign_clusters`: stages that compare the vectors of documents."""
