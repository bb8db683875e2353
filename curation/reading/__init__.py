# SPDX-License-Identifier: Apache-2.0
"""Readers: a slice of input becomes Arrow tables of documents and a list of rejected records. Host code that both
engines share.

One module per format. Every reader yields `Documents` in batches, for files of any size. Text is always valid UTF-8.
"""

from curation.reading.documents import Documents, schema_of
from curation.reading.formats import field_names, probe, read_documents, row_groups
from curation.reading.urls import shown

__all__ = ["Documents", "field_names", "probe", "read_documents", "row_groups", "schema_of", "shown"]
