# SPDX-License-Identifier: Apache-2.0
"""Numbers of the classes of characters in o200k's regular expression, which distinguish upper and lower case."""

# LETTER has no case, and MARK may be a part of words. BREAK is CR or LF.
OTHER, NUMBER, SPACE, BREAK, UPPER, LOWER, LETTER, MARK = range(8)
