# SPDX-License-Identifier: Apache-2.0
"""A slice becomes Arrow tables of documents and a list of records that are none. Host code, shared by both engines.

One module per format. Each gives `Documents` batch by batch, whatever the size of the file; text is always valid UTF-8.
"""

from curation.reading.documents import Documents, schema_of
from curation.reading.formats import field_names, probe, read_documents, row_groups
from curation.reading.urls import shown

__all__ = ["Documents", "field_names", "probe", "read_documents", "row_groups", "schema_of", "shown"]
