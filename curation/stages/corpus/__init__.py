# SPDX-License-Identifier: Apache-2.0
"""What stages share that compare documents: ranges of keys, saved indexes, removed rows, cuts, and similarity."""
