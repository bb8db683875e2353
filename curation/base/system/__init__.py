# SPDX-License-Identifier: Apache-2.0
"""Access to the operating system: durable files, signals, worker processes, the terminal."""
