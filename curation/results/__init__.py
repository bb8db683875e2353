# SPDX-License-Identifier: Apache-2.0
"""A finished run for its readers: the report, and commands that verify, show, compare, move and copy it.

It reads what `curation.record` describes. It knows neither phases nor planning.
"""
