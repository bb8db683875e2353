# SPDX-License-Identifier: Apache-2.0
"""Asks the endpoint of a language model for synthetic documents or for scores of documents. Answers are stored before
they are used.

No run calls an endpoint. A run reads the files that `curation.generate` has written, as it reads any other files.
"""
