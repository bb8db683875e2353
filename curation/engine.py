# SPDX-License-Identifier: Apache-2.0
"""The choice of an engine, for notebooks."""

from curation.base.engine import choose_engine as choose_engine
from curation.base.engine import gpu_obstacle as gpu_obstacle
