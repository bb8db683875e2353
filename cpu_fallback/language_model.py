# SPDX-License-Identifier: Apache-2.0
"""Scores one document with a language model. `curation.kernels.language_model` describes the model and its arrays."""

import numpy as np

from curation.kernels import language_model as lm
from curation.kernels.cache import kernel
from curation.kernels.utf8 import byte_at


@kernel
def score_word(word, history, settings, entries, scratch):
    """Return the log probability of a word of the model after the `history` words in `scratch`. Add the word to these
    words; afterwards there are min(history + 1, order - 1) of them."""
    order = settings[lm.ORDER]
    best = lm.weights_of(entries, word)
    key = word
    length = 1
    scratch[2 * order] = lm.back_off(best)
    reached = 1
    while reached <= history:
        key = lm.longer_key(key, np.uint64(scratch[reached - 1]))
        weights = lm.weights_of(entries, key)
        scratch[2 * order + reached] = 0
        if weights != np.uint64(0):
            best = weights
            length = reached + 1
            scratch[2 * order + reached] = lm.back_off(weights)
        elif settings[lm.CLOSED]:
            break
        reached += 1
    for n in range(reached, order):
        scratch[2 * order + n] = 0
    score = lm.log_probability(best)
    for n in range(length, history + 1):
        score += scratch[order + n - 1]
    for n in range(order - 1):
        scratch[order + n] = scratch[2 * order + n]
    for n in range(order - 2, 0, -1):
        scratch[n] = scratch[n - 1]
    scratch[0] = np.int64(word)
    return score


@kernel
def begin_sentence(settings, entries, scratch):
    """Make `<s>` the only word of the history."""
    order = settings[lm.ORDER]
    for n in range(order):
        scratch[order + n] = 0
    scratch[0] = settings[lm.BEGIN]
    scratch[order] = lm.back_off(lm.weights_of(entries, np.uint64(settings[lm.BEGIN])))


@kernel
def score_document(data, start, end, settings, entries, scratch, result):
    """Write the sum of the log probabilities of data[start:end], and its number of words, lines and unknown words."""
    longest = settings[lm.ORDER] - 1
    total, words, lines, unknown = 0, 0, 0, 0
    history = -1  # -1: not in a sentence
    i = start
    while i <= end:
        byte = byte_at(data, i) if i < end else 0x0A
        if byte == 0x0A and history >= 0:
            total += score_word(np.uint64(settings[lm.END]), history, settings, entries, scratch)
            lines += 1
            history = -1
        if lm.is_space(byte):
            i += 1
            continue
        first = i
        while i < end and not lm.is_space(byte_at(data, i)):
            i += 1
        if history < 0:
            begin_sentence(settings, entries, scratch)
            history = min(1, longest)
        word = lm.word_of(data, first, i, settings, entries)
        total += score_word(word, history, settings, entries, scratch)
        history = min(history + 1, longest)
        words += 1
        unknown += 0 if word != np.uint64(settings[lm.UNKNOWN]) else 1
    result[lm.TOTAL], result[lm.WORDS], result[lm.LINES], result[lm.UNKNOWN_WORDS] = total, words, lines, unknown
