# SPDX-License-Identifier: Apache-2.0
"""The documents of `curate demo`, for notebooks."""

from curation.tools.demo import collect_documents as collect_documents
