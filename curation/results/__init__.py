# SPDX-License-Identifier: Apache-2.0
"""Code about finished runs: the report, and the commands that verify, show, compare, move and copy a run.

It reads the files that `curation.record` describes, and knows neither phases nor planning.
"""
