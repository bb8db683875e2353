# SPDX-License-Identifier: Apache-2.0
"""Measures how much main text each extractor keeps, and its speed (`docs/measurements/compared.md`).

    python -m benchmarks.bench_pages FOLDER [--pages 100] [--rounds 3]

Each folder in FOLDER is a family of pages. The main text of `x.html` is `x.txt` beside it, or that of the element
that the generator of the page marks as such: `role=main` and `<main>` of Sphinx and Javadoc, the outermost chapter or
section of DocBook. Pages without either are left out, and so are main texts below MIN_WORDS.

Texts are compared by runs of four words, with their number of occurrences. kept: the share of the main text's runs that
the extractor returns. other: the share of the returned runs that the main text lacks. Both from the 10th to the 90th
percentile of pages. empty: pages without any text. MB/s: MB of HTML per CPU second, of all pages, from round to round.
"""

import argparse
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from lxml import html as lxml_html

from curation.reading import pages
from curation.reading.extract_settings import Extract
from curation.reading.page_encodings import decode

RUN, MIN_WORDS = 4, 100
DOCBOOK = ("article", "book", "chapter", "section", "sect1", "sect2", "preface", "appendix", "refentry", "part")
MAIN = ["//*[@role='main']", "//main", *(f"(//div[@class='{name}'])[1]" for name in DOCBOOK)]
NOT_MAIN = "//script | //style | //a[@class='headerlink'] | //div[@class='toc'] | //nav"
EXTRACTORS = [
    Extract(),
    Extract(by="trafilatura"),
    Extract(by="justext", language="English"),
    Extract(by="justext", language="none"),
]


def main_text(path: Path, page: bytes) -> str:
    """The known main text of a page, or ""."""
    if path.with_suffix(".txt").exists():
        return path.with_suffix(".txt").read_text("utf-8", "replace")
    root = lxml_html.document_fromstring(decode(page)[0].encode(), parser=lxml_html.HTMLParser(encoding="utf-8"))
    for element in root.xpath(NOT_MAIN):
        element.drop_tree()
    found = next((found for path in MAIN for found in root.xpath(path)), None)
    return "" if found is None else " ".join(found.itertext())


def runs(text: str) -> Counter[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return Counter(zip(*(words[start:] for start in range(RUN)), strict=False))


def known_pages(folder: Path, number: int) -> Iterator[tuple[bytes, Counter[tuple[str, ...]]]]:
    """Pages of a folder in an order by chance, up to `number` of those whose main text is known."""
    paths = sorted(path for path in folder.rglob("*.htm*") if path.is_file() and not path.is_symlink())
    random.Random(0).shuffle(paths)
    for path in paths:
        if number == 0:
            return
        page = path.read_bytes()
        known = runs(main_text(path, page)) if page.strip() else Counter()
        if known.total() >= MIN_WORDS:
            number -= 1
            yield page, known


def spread(shares: list[float]) -> str:
    if len(shares) < 2:
        return "-"
    tenths = statistics.quantiles(shares, n=10)
    return f"{tenths[0]:.0%} to {tenths[-1]:.0%}"


def measure(family: str, known: list[tuple[bytes, Counter[tuple[str, ...]]]], rounds: int) -> None:
    readers = [pages.extractor(extract) for extract in EXTRACTORS]
    size = sum(len(page) for page, _ in known) / 1e6
    speeds: list[list[float]] = [[] for _ in readers]
    texts: list[list[str]] = [[] for _ in readers]
    for _ in range(rounds):
        for number, read in enumerate(readers):
            started = time.process_time()
            texts[number] = [_read(read, page) for page, _ in known]
            speeds[number].append(size / (time.process_time() - started))
    print(f"\n{family}: {len(known)} pages, {size:.1f} MB")
    for extract, found, speed in zip(EXTRACTORS, texts, speeds, strict=True):
        kept, other = [], []
        for text, (_, main) in zip(found, known, strict=True):
            returned = runs(text)
            shared = (returned & main).total()
            kept.append(shared / main.total())
            if returned:
                other.append(1 - shared / returned.total())
        name = f"{extract.by} {extract.language}".strip()
        print(
            f"  {name:16} kept {spread(kept)} (median {statistics.median(kept):.0%}), other {spread(other)} (median "
            f"{statistics.median(other):.0%}), empty {found.count('')}, {min(speed):.1f} to {max(speed):.1f} MB/s"
        )


def _read(read: object, page: bytes) -> str:
    try:
        return str(read(page)[0]).strip()  # type: ignore[operator]
    except ValueError as error:
        print("  rejected:", error)
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pages", type=int, default=100, help="of each family")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for folder in sorted(path for path in given.folder.iterdir() if path.is_dir()):
        known = list(known_pages(folder, given.pages))
        if known:
            measure(folder.name, known, given.rounds)


if __name__ == "__main__":
    main()
