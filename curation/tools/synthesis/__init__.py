# SPDX-License-Identifier: Apache-2.0
"""Answers of a language model's endpoint, stored before they are used: synthetic documents, and scores of documents.

No run calls an endpoint. A run reads the files that `curation.generate` has written, as it reads any other files.
"""
