# SPDX-License-Identifier: Apache-2.0
"""What a run computes before it reads its documents: identity, plan, memory, disk, and a sample of the inputs.

The report uses its warnings about lost groups, too. The package knows recipes, stages and readers, but no phase of a
run.
"""
