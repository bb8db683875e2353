# SPDX-License-Identifier: Apache-2.0
"""Counts letters by script: Unicode's property Script, with the codes of ISO 15924. Both engines call this module on
the CPU.

A letter is a character of a category L* whose script is neither Common nor Inherited. Marks, digits and the Japanese
`ー`, which is Common, are no letters. ASCII is counted in blocks of 8 bytes.

Unicode separates Han, hiragana and katakana; labels of languages do not (`jpn_Jpan`, `cmn_Hani`, `kor_Hang`). So the
main script of a text counts the three as one: `Jpan` if at least one in KANA_SHARE letters is kana, else `Hani`.
"""

from functools import cache

import numpy as np

from curation.kernels.cache import kernel
from curation.kernels.hashing import load64
from curation.kernels.tables import ALPHA, load_tables
from curation.kernels.utf8 import decode, record_of
from curation.kernels.words import HIGH_BITS, LOW_BITS, first_mark, low_bytes, mark_letters

# One per script, in the order of `tables.SCRIPTS`.
CODES = tuple(
    (
        "Zzzz Zyyy Zinh Adlm Ahom Hluw Arab Armn Avst Bali Bamu Bass Batk "
        "Beng "  # codespell:ignore
        "Berf Bhks Bopo Brah Brai Bugi Buhd "
        "Cans Cari Aghb Cakm Cham Cher Chrs Copt Xsux Cprt Cpmn Cyrl Dsrt Deva Diak Dogr Dupl Egyp Elba Elym Ethi "
        "Gara Geor Glag Goth Gran Grek Gujr Gong Guru Gukh Hani Hang Rohg Hano Hatr Hebr Hira Armi Phli Prti Java "
        "Kthi Knda Kana Kawi Kali Khar Kits Khmr Khoj Sind Krai Laoo Latn Lepc Limb Lina Linb Lisu Lyci Lydi Mahj "
        "Maka "  # codespell:ignore
        "Mlym Mand Mani Marc Gonm Medf Mtei Mend Merc Mero Plrd Modi Mong Mroo Mult Mymr Nbat Nagm Nand Talu "
        "Newa Nkoo Nshu Hmnp Ogam Olck Onao Hung Ital Narb Perm Xpeo Sogo Sarb Orkh Ougr Orya Osge Osma Hmng Palm "
        "Pauc Phag Phnx Phlp Rjng Runr Samr Saur Shrd Shaw Sidd Sidt Sgnw Sinh Sogd Sora Soyo Sund Sunu Sylo Syrc "
        "Tglg Tagb Tale Lana Tavt Tayo Takr Taml Tnsa Tang Telu Thaa Thai Tibt Tfng Tirh Todr Tols Toto Tutg Ugar "
        "Vaii Vith Wcho Wara Yezi Yiii Zanb"
    ).split()
)
NO_SCRIPTS = 3  # Unknown, Common, Inherited: the first
JAPANESE, HAN, KANA = "Jpan", "Hani", ("Hira", "Kana")
# Codes that stand for several scripts: their letters are the letters of all of these.
JOINED = {JAPANESE: (HAN, *KANA), "Hrkt": KANA, "Kore": ("Hang", HAN), "Hanb": (HAN, "Bopo")}
KANA_SHARE = 10
LATIN = CODES.index("Latn")
MAIN = tuple(sorted({*CODES[NO_SCRIPTS:], JAPANESE} - {*KANA}))  # the codes that a text can have


@kernel
def count_letters(data, offsets, pages, records, letters, counts):
    """Add the letters of the texts data[offsets[k]:offsets[k + 1]] to counts[k, script].

    letters  uint8, by Unicode record: the script of a letter, 0 for another character
    counts   int32[texts, scripts]
    """
    for row in range(offsets.size - 1):
        i, end = offsets[row], offsets[row + 1]
        latin = np.int64(0)
        while i < end:
            if i + 8 <= end:
                block = load64(data, i)
                ascii_bytes = first_mark(block & HIGH_BITS)
                if ascii_bytes > 0:
                    marks = mark_letters(block & ~HIGH_BITS) & low_bytes(ascii_bytes)
                    latin += np.int64((marks >> np.uint64(7)) * LOW_BITS >> np.uint64(56))
                    i += ascii_bytes
                    continue
            code_point, width = decode(data, i)
            counts[row, letters[record_of(pages, records, code_point)]] += 1
            i += width
        counts[row, LATIN] += latin


@cache
def _letters() -> np.ndarray:
    tables = load_tables()
    is_letter = (tables.flags & ALPHA != 0) & (tables.script >= NO_SCRIPTS)
    return np.where(is_letter, tables.script, 0).astype(np.uint8)


def letter_counts(data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the letters of each text by script, int32[texts, len(CODES)]; the first NO_SCRIPTS columns are 0."""
    tables = load_tables()
    counts = np.zeros((len(offsets) - 1, len(CODES)), np.int32)
    count_letters(data, offsets, tables.pages, tables.records, _letters(), counts)
    counts[:, :NO_SCRIPTS] = 0
    return counts


def main_scripts(counts: np.ndarray) -> np.ndarray:
    """Return the script with most letters in each text, as an index of MAIN, int16; -1 without letters. Of scripts with
    equally many letters, the first of MAIN counts; its codes are in alphabetical order."""
    ranked = np.zeros((len(counts), len(MAIN)), np.int32)
    columns = {code: column for column, code in enumerate(MAIN)}
    known = [number for number, code in enumerate(CODES) if code in columns]
    ranked[:, [columns[CODES[number]] for number in known]] = counts[:, known]
    kana = counts[:, [CODES.index(code) for code in KANA]].sum(axis=1)
    letters = kana + counts[:, CODES.index(HAN)]
    is_japanese = (kana > 0) & (kana * KANA_SHARE >= letters)
    ranked[:, columns[HAN]] = np.where(is_japanese, 0, letters)
    ranked[:, columns[JAPANESE]] = np.where(is_japanese, letters, 0)
    return np.where(ranked.any(axis=1), ranked.argmax(axis=1), -1).astype(np.int16)


def letters_of(counts: np.ndarray, code: str) -> np.ndarray:
    """Return how many letters of each text belong to the script `code`, int64. A code of JOINED stands for several
    scripts."""
    return counts[:, [CODES.index(part) for part in JOINED.get(code, (code,))]].sum(axis=1)
