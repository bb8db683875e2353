# SPDX-License-Identifier: Apache-2.0
"""Makes `report.json`, `report.html`, and the lines that a run prints from them.

It reads records and samples that the phases wrote, and changes no output.
"""
