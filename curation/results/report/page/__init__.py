# SPDX-License-Identifier: Apache-2.0
"""The sections of the page `report.html`, one module per concern. `curation.results.report.html` puts them together."""
