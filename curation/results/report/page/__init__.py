# SPDX-License-Identifier: Apache-2.0
"""Parts of the page `report.html`: charts, script and templates. `curation.results.report.html` makes the page from
them."""
