# SPDX-License-Identifier: Apache-2.0
"""What the stages that compare documents share: ranges of keys, saved indexes, removed rows, cuts, and similarity."""
