# SPDX-License-Identifier: Apache-2.0
"""Regular expressions of tokenizers as numbers, and the classes of characters that all but o200k tell apart.

Tables of a vocabulary have these numbers, and kernels compare with them.
"""

OTHER, LETTER, NUMBER, SPACE, BLANK, BREAK, QUOTE = range(7)  # BLANK is U+0020, BREAK is CR or LF, QUOTE is "'"
GPT2, CL100K, LLAMA3, O200K = range(4)
