# SPDX-License-Identifier: Apache-2.0
"""Row stages: their result for a document depends only on this document. The result is a removal, a new text or new
columns."""
