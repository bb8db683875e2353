# SPDX-License-Identifier: Apache-2.0
"""`report.json`, `report.html`, and what a run prints of them.

It reads records and samples of the phases, and changes no output.
"""
