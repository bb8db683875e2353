# SPDX-License-Identifier: Apache-2.0
"""Everything that is known before a run reads its documents: identity, plan, memory, disk, and a sample of the inputs.

The report shares the warnings about lost groups. The package knows recipes, stages and readers, and no phase of a run.
"""
