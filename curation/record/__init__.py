# SPDX-License-Identifier: Apache-2.0
"""What a run writes down: its folder and lock, plan, tasks, ledger and decisions, with the schemas of their files.

`running` writes these files and `results` reads them, so neither package needs the other.
"""
