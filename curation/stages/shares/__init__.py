# SPDX-License-Identifier: Apache-2.0
"""`select` and `mix`: exact shares of the documents."""
