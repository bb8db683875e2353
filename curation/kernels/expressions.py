# SPDX-License-Identifier: Apache-2.0
"""Numbers of tokenizers' regular expressions, and the classes of characters that all of them except o200k distinguish.

The tables of a vocabulary store these numbers; kernels compare with them.
"""

OTHER, LETTER, NUMBER, SPACE, BLANK, BREAK, QUOTE = range(7)  # BLANK is U+0020, BREAK is CR or LF, QUOTE is "'"
GPT2, CL100K, LLAMA3, O200K = range(4)
