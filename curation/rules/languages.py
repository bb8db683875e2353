# SPDX-License-Identifier: Apache-2.0
"""Compares labels of languages in different forms: `zh`, `zho`, `chi`, `cmn_Hani`, `ZHO_Hans`, `zh-CN`.

A label has a code of ISO 639-1 or 639-3, or a bibliographic code of ISO 639-2. It may also have a script of ISO 15924
and a region. A code of several languages means the one that models use as a label: `zho` means `cmn`. A label without a
script means the script in which FineWeb-2 has most documents of that language.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from curation.base.errors import near_or_nothing
from curation.rules.fineweb2_file import languages

PREFIX = "__label__"  # of labels of fastText
FORM = re.compile(r"([a-z]{2,3})(?:[_-]([a-z]{4}))?(?:[_-](?:[a-z]{2}|[0-9]{3}))?", re.IGNORECASE)
SCRIPT_PLACE = -5  # of `_Latn` in `deu_Latn`
# Each word is a code, followed by the three letters of the code that it means.
TWO_LETTERS = """
aaaar ababk aeave afafr akaka amamh anarg arara asasm avava ayaym azaze babak bebel bgbul bibis
bmbam bnben bobod brbre bsbos cacat ceche chcha cocos crcre csces cuchu cvchv cycym dadan dedeu
dvdiv dzdzo eeewe elell eneng eoepo esspa etest eueus fafas ffful fifin fjfij fofao frfra fyfry
gagle gdgla glglg gngrn guguj gvglv hahau heheb hihin hohmo hrhrv hthat huhun hyhye hzher iaina
idind ieile igibo iiiii ikipk ioido isisl itita iuiku jajpn jvjav kakat kgkon kikik kjkua kkkaz
klkal kmkhm knkan kokor krkau kskas kukur kvkom kwcor kykir lalat lbltz lglug lilim lnlin lolao
ltlit lulub lvlav mgmlg mhmah mimri mkmkd mlmal mnmon mrmar msmsa mtmlt mymya nanau nbnob ndnde
nenep ngndo nlnld nnnno nonor nrnbl nvnav nynya ococi ojoji omorm orori ososs papan pipli plpol
pspus ptpor quque rmroh rnrun roron rurus rwkin sasan scsrd sdsnd sesme sgsag shhbs sisin skslk
slslv smsmo snsna sosom sqsqi srsrp ssssw stsot susun svswe swswa tatam tetel tgtgk ththa titir
tktuk tltgl tntsn toton trtur tstso tttat twtwi tytah uguig ukukr ururd uzuzb veven vivie vovol
wawln wowol xhxho yiyid yoyor zazha zhzho zuzul bhbih iwheb inind jiyid moron
"""
BIBLIOGRAPHIC = """
tibbod czeces welcym gerdeu greell baqeus perfas frefra armhye iceisl geokat macmkd maomri maymsa
burmya dutnld rumron sloslk albsqi chizho
"""
ONE_OF_SEVERAL = """
akatwi araarb aymayr azeazj bihbho crecrk estekk fulfuv grngug hbssrp ikuike ipkesk kauknc komkpv
konkng kurkmr lavlvs mlgplt monkhk msazsm nepnpi nornob ojiojb oriory ormgaz puspbt quequy sqials
swaswh tglfil uzbuzn yidydd zhazyb zhocmn
"""
SCRIPTS = """
ace_Latn arb_Arab asm_Beng azj_Latn ben_Beng bjn_Latn brx_Deva chr_Cher cmo_Latn crh_Latn crk_Latn fuv_Latn gag_Latn
gmv_Latn gof_Latn gom_Deva got_Goth guj_Gujr hak_Latn hin_Deva hoc_Latn kaa_Cyrl kan_Knda kas_Arab kmr_Latn knc_Latn
kyu_Kali lad_Latn lfn_Latn lif_Deva mal_Mlym mar_Deva min_Latn mni_Beng npi_Deva ojb_Cans ory_Orya pan_Guru rmn_Latn
rmy_Latn ron_Latn san_Deva sat_Olck snd_Arab srp_Cyrl sus_Latn syl_Beng tam_Taml taq_Latn tat_Cyrl tel_Telu ttq_Latn
tuk_Latn uig_Arab urd_Arab uzn_Latn wal_Latn zsm_Latn
"""  # of languages that FineWeb-2 has in several scripts
OTHER_SCRIPTS = {"Hans": "Hani", "Hant": "Hani", "Hira": "Jpan", "Kana": "Jpan", "Kore": "Hang"}
# Points and accents of Hebrew; honorific signs, vowel marks and Koranic signs of Arabic. All are of category Mn. The
# pattern is for `re` and RE2.
VOWEL_MARKS = (
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc"
    "\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0897-\u089f\u08ca-\u08e1\u08e3-\u08ff]+"
)
OF_WIKIPEDIA = {  # labels of lid.176 are codes of Wikipedia
    "als": "gsw_Latn",  # codespell:ignore als  # Alemannic; in ISO 639-3 it is Tosk Albanian
    "sh": "srp_Latn",
    "hbs": "srp_Latn",
}


class Label(NamedTuple):
    """A language: its code of ISO 639-3, its script, and whether the label names the script."""

    code: str
    script: str
    names_script: bool


@cache
def _codes() -> dict[str, str]:
    tables = (TWO_LETTERS, BIBLIOGRAPHIC, ONE_OF_SEVERAL)
    return {pair[:-3]: pair[-3:] for table in tables for pair in table.split()}


@cache
def _scripts() -> dict[str, str]:
    names = [*languages(), *SCRIPTS.split()]  # later entries, those of SCRIPTS, win
    return {name[:SCRIPT_PLACE]: name[SCRIPT_PLACE + 1 :] for name in names}


@lru_cache(1 << 12)
def parse_label(label: str) -> Label | None:
    """Return the language of a label; None for an unknown label, and for any other word."""
    plain = OF_WIKIPEDIA.get(label.removeprefix(PREFIX).lower(), label.removeprefix(PREFIX))
    match = FORM.fullmatch(plain)
    if not match:
        return None
    code, script = match[1].lower(), (match[2] or "").title()
    while code in _codes():
        code = _codes()[code]
    if script:
        known = OTHER_SCRIPTS.get(script, "Jpan" if (code, script) == ("jpn", "Hani") else script)
        return Label(code, known, True) if len(code) == 3 else None
    return Label(code, _scripts()[code], False) if code in _scripts() else None


def matching(wanted: str, labels: Sequence[str]) -> list[str]:
    """Return the labels of `labels` that mean the language `wanted`: the same label, or else all labels of its
    language. If `wanted` names a script, the labels must have this script."""
    if wanted in labels:
        return [wanted]
    language = parse_label(wanted)
    if language is None:
        return []
    others = ((label, parse_label(label)) for label in labels)
    return [
        label
        for label, other in others
        if other and other.code == language.code and (not language.names_script or other.script == language.script)
    ]


@lru_cache(4)
def scripts_of(labels: tuple[str, ...]) -> frozenset[str]:
    """Return the scripts of the languages of a model; empty if one of its labels is no language."""
    found = [parse_label(label) for label in labels]
    return frozenset(each.script for each in found if each) if all(found) else frozenset()


def same_language(labels: Iterable[str]) -> tuple[str, str] | None:
    """Return the first two different labels of the same language and script; None without such labels."""
    seen: dict[tuple[str, str], str] = {}
    for label in labels:
        if language := parse_label(label):
            key = language.code, language.script
            if key in seen and seen[key] != label:
                return seen[key], label
            seen[key] = label
    return None


def near_language(label: str) -> str:
    """Return the end of a message about an unknown label; it suggests similar labels."""
    return near_or_nothing(label, [*languages(), *_codes()])
