# SPDX-License-Identifier: Apache-2.0
"""Row stages: each looks at one document at a time, and answers with a verdict, a text or columns."""
