# SPDX-License-Identifier: Apache-2.0
"""Memory of the device and of the host: reservations, pools, and copies between both."""
