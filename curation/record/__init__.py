# SPDX-License-Identifier: Apache-2.0
"""What a run writes down: its folder and lock, plan, tasks, ledger and decisions, with the schemas of their files.

`running` writes it and `results` reads it; neither needs the other for that.
"""
