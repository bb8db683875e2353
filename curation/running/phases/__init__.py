# SPDX-License-Identifier: Apache-2.0
"""The phases of a run, and the files that each of them writes: map, corpus, write and finish.

A phase knows its plan and its tasks. It knows neither the report nor its caller.
"""
