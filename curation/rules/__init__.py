# SPDX-License-Identifier: Apache-2.0
"""Rules on measures and columns: the grammar of rules, the rule sets, and the code that applies rules to documents."""
