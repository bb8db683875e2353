# SPDX-License-Identifier: Apache-2.0
"""Functions besides runs: overlap with evaluation sets, training of models, graphs, generated documents, the demo,
`doctor`.

Only the command line and the names in `curation` load it.
"""
