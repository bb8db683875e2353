# SPDX-License-Identifier: Apache-2.0
"""Rules on measures and columns: the grammar of a rule, the rule sets, and the verdict on documents."""
