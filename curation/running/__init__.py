# SPDX-License-Identifier: Apache-2.0
"""The runner of recipes: plan, map and corpus phases, outputs, ledger, report; and `verify` of finished runs."""
