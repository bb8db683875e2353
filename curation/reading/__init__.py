# SPDX-License-Identifier: Apache-2.0
"""Readers: a slice of input becomes Arrow tables of documents and a list of rejected records. Host code that both
engines share.

`formats/` has a module per format. Readers yield `Documents` in batches, for files of any size. Text is valid UTF-8.
"""

from curation.reading.documents import Documents, schema_of
from curation.reading.formats import probe
from curation.reading.slice_documents import read_documents
from curation.reading.urls import shown

__all__ = ["Documents", "probe", "read_documents", "schema_of", "shown"]
