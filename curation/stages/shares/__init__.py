# SPDX-License-Identifier: Apache-2.0
"""`select` and `mix`: keep exact shares of the documents."""
