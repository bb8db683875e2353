# SPDX-License-Identifier: Apache-2.0
"""`redact`: what is taken for personal data and what is not, by hand and against plain Python; columns of every shape;
what a run counts."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import curation
from curation.base.contract import ID, ROW, TEXT
from curation.base.errors import RecipeError
from curation.recipes.recipe import parse_recipe
from curation.results.finished.verify import verify
from curation.running.run import run
from curation.stages import Redact, invoke
from curation.stages.rows.personal_data import FINDERS
from tests.conftest import frame_of, hidden_nulls
from tests.corpus import NASTY, characters
from tests.oracle import redaction
from tests.runs import kept_rows, made_texts, recipe_of, records_of

EMAIL, IP, CARD, SSN, PHONE = (f"[REDACTED]_{name.upper()}" for name in FINDERS)
# In angle brackets what is to be found; the texts are without them.
FOUND = {
    EMAIL: [
        "<a@b.co>", "mail <first.last+tag@mail.example.org>.", "(<a_b%c@x-1.example>)", "mailto:<a@b.co>?subject=x",
        "<a@b.co>,<d@e.fr> <f@g.de>;<h@i.jp>", "'<a@b.co>'", "_<a@b.co>_", "-<a@b.co>-", "<A@163.com>\n<b@B.COM>",
        "请写信到<a@b.cn>。", "é<a@b.co>é", "<a@b.xn--p1ai>", "x@y@<z@a.co>", "<a@b.co>.", "<a@b.co>.1", "<a@b.c.de>.f",
        f"<{'a' * 64}@b.co>", f"b.<{'a' * 62}.b@c.de>", "git@x <x@github.com>:a/b", f"<a@{10 * 'b.'}co>.de",
        f"<a@b.xn--{58 * 'x'}z>", "<_______@example.com>", "é<_@b.co>_",
        "<user@[192.168.0.1]>", "<a@[IPv6:2001:db8::1]>x", "<a@[1.2.3.4]>5",
        "-<_.-%@b.co>", f"<{64 * '_'}@b.co>", "_.<a_@b.co>", f"to: <a@{63 * 'b'}.{24 * 'c'}>", "<a@b.comNext>",
        # whatever the domain in mail, the names of networks without the root zone, and extensions
        "From: <a@corp.local>", "<a@corp.local>", "to:<me@host.dom>", "mailto:<me@host.dom>?x",
        "<a@b.org.html>",
        "<a@B.COM>(x)", "<this@a.com>", "<A@B.DE>", "<a@21cn.de>", "<a@b.yu> (", "<git@a.de>",
    ],
    IP: [
        "<81.2.3.54>", "<1.0.41.55> <223.255.255.255>", "http://<11.0.0.1>:8080/x", "<192.169.0.0>/16", "ip4:<8.8.8.8>",
        "<81.0.0.1>,<81.0.0.2>", "<81.0.0.1>-<81.0.0.9>", "at <81.0.0.1>.", "<81.0.0.1>\nnext", "地址<81.0.0.1>的",
        "<192.169.0.1>. Then", "a\n<81.0.0.1> is down", "the section is <81.2.3.4>",
        "a\n \t*#-  - <1.2.3.4>:80. x", "<2.2.2.2>", "<1.2.32.32>. Title",
        "<2001:db9::1>", "[<2001:DB9:0:0:8:800:200C:417A>]:80", "<2001:db9::>/32",
        "<ff02::1>, <ff05::1:2>",
        "<2001:1:2:3:4:5:6::>", "at <2001:db9::1>: up", "::ffff:<11.0.0.1>", "at <2001:db9::1>.",
        # small numbers with what is of a host
        "host <1.2.3.4>", "remoteIp=<1.2.3.4>", "<1.2.3.4>/24", "<1.2.3.4> port 22", "//<1.2.3.4>/disk",
        "a.example (<1.2.3.4>)",
        "<1.2.3.4> - - [10/Oct", "('<1.2.3.4>', 80)", "<1.2.3.4>, <81.2.3.54>", "nameserver <8.8.4.4>", "IPs <1.2.3.4>",
        "addr <1.2.3.4>, <1.2.3.5>",
    ],
    CARD: [
        "<4111111111111111>", "<4111 1111 1111 1111>", "<4111-1111-1111-1111>", "<378282246310005>",
        "<3782 822463 10005>", "<30569309025904>", "<3056 930902 5904>", "<5555555555554444>", "<2223003122003222>",
        "<6011111111111117>", "<3566002020360505>", "<6200000000000005>", "<4000000000000000006>",
        "card:<4111111111111111>,",
        "<4111 1111 1111 1111> <5555 5555 5555 4444>", "<4111111111111111> 5555555555554440 <4012888888881881>",
        "4000 <4111 1111 1111 1111> 123 12/29", "<4111-1111-1111-1111>x", "卡<4111111111111111>号",
        "1234 <4111 1111 1111 1111>",
    ],
    SSN: [
        "<123-45-6789>", "<001-01-0001> <899-99-9999>", "SSN:<123-45-6789>.", "(<123-45-6789>)", "<665-45-6789>x",
        "号<123-45-6789>号",
    ],
    PHONE: [
        "<212-555-0123>", "<(212) 555-0123>", "<(212)555-0123>", "<(212) 555 0123>", "<212.555.0123>",
        "<212 555-0123>",
        "<212/555-0123>", "<1-212-555-0123>", "<1 (212) 555-0123>", "<+1 212 555 0123>", "<+12125550123>",
        "<+1 (212) 555.0123>",
        "<212-555-0123> <212-555-0124>", "<212-555-0123>,<(212) 555-0124>", "<212-555-0123>x45", "<212-555-0123>/4",
        "tel:<+12125550123>", "Call <212-555-0123>.", "电话<212-555-0123>，", "(<212-555-0123>)", "911 <212-555-0123>",
        "<+44 20 7946 0958>", "<+44 (0)20 7946 0958>", "<+49 (0) 30 1234567>", "<+33 1 23 45 67 89>",
        "<+972-4-8307322>",
        "<+7 (912) 345-67-89>", "<+39 06 1234 5678>", "(<+49 30 123456789>)", "<+442079460958>;<+4930123456789>",
        "<+44 20 7946 0958> <+44 20 7946 0959>",
    ],
}  # fmt: skip
NOT_FOUND = [
    # names in programs, units of systemd, repositories, packages
    "this@Main.getString(R.x)", "return@forEach.also { }", "this@Outer.name", "x@meta.data$a", "seu@info.name$a",
    "x@meta.data", "<me@host.dom",
    "w = q@k.transpose(-2, -1)", "q@k.to(x)", "x@info.id[1]", "x@info.id <- 1", "x@y.is_z", "user@Model.Id", "sps@B.T",
    "getty@tty1.service", "backup@daily.timer", "a@b.target", "po/en@quot.po", "net@v0.1.2-rc.dev", "a@1.2.dev",
    "me@host.dom",
    "git@github.com:a/b", "ssh://git@github.com/a",
    # small numbers, and all numbers after a word for numbers
    "1.2.3.4", "the section is 1.2.3.4", "2.5.29.15", "lib (1.2.99.2-1)", "git 2.10.0.9", "§ 13.2.3.5", ">= 6.9.11.60",
    "1.1.1.1", "Chrome/130.0.0.0", "version=\"81.2.3.54\"", "Identifier('1.3.101.112')", "host of\n1.2.3.4",
    "xip 1.2.3.4", "ghost 1.2.3.4",
    "LibreOffice/26.8.0.3$MacOSX", "## [1.128.1.0] - 2026-09-02", ".Net v2.1.1.108", '"2.21.7.14-play"',
    "2001::25de::cade",
    "2000::", "fd00::/8", "ff02::",
    # private, loopback, documentation
    "127.0.0.1:80", "host 10.0.0.1", "192.168.0.0/16", "0.0.0.0", "255.255.255.0", "203.0.113.9", "fe80::1%eth0",
    "2001:db8::1",
    "", "no data", "a@b", "a@b.c", "@b.co", "a@.co", "a@b..co", "a @b.co", "a@-b.co", "a@b-.co", "logo@2x.png",
    "react@17.0.2", "a@[300.1.1.1]", "a@[b.c]", "a@[IPv6:]", "a@[1.2.3",
    "a@b.c1", "a at b dot co", "é@b.co", "a@é.co", f"{'a' * 65}@b.co", "a@b.co2", "a@1.2.3.4.5",
    ".@b.co", "-%+@b.co", f"{65 * '_'}@b.co",
    f"a@{64 * 'b'}.co", f"a@b.{25 * 'c'}", f"a@{60 * 'b'}-{2 * 'b'}-.co",
    # versions, sections, object identifiers, names of files
    "v1.2.3.4", "1.2.3.4.5", "1.3.6.1.4.1.311", "version 1.2.3.4", "Section 9.7.3.3), ", "(Release 10.0.0.1)",
    "1.2.3.256",
    "01.2.3.4", "1.2.3", "libx-1.2.3.4.tar.gz", "x.1.2.3.4", "1.2.3.4rc1", "1.2.3.4-beta", "1.2.3.4.tar",
    "120.0.6099.109",
    "13.12.3.1. Preview", "a\n\n9.7.3.2. Bracket", "- 3.3.3.1 Metaclasses", "of Chapters. 1.2.3.4", "Sections 1.2.3.4,",
    "a\n \t*#-  -1.2.3.4. x",
    # times, C++, hardware addresses, PCI
    "04:05:06", "2024:01:02 04:05:06", "std::dec", "a::b", "face::b", "00:1b:44:11:3a:b7", "9005:0285:9005:02d4",
    "::1",
    "2001:db8", "2001:db8::1::2", "2001:1:2:3:4:5:6:7:8", "2001:1:2:3:4:5:6:7::", "x2001:db8::1", ":2001:db8::1",
    # other numbers: not of an issuer, a wrong check digit, parts of others
    "4111111111111112", "4222222222222", "1234567890123452", "4111 1111 11111111", "4111 1111-1111 1111",
    "4111 111111 111111", "41111111111111111",
    "0.4111111111111111", ".4111111111111111", "a4111111111111111", "4111111111111111a", "4111111111111111.5",
    "978-4111111111111111",
    "5600000000000003", "2721000000000004", "100644 000000 1234567", "30 00 00 00 00 00 00 00", "281 474 976 710 656",
    "1700000000000", "4006381333931", "20240102030405",
    "000-45-6789", "666-45-6789", "900-45-6789", "123-00-6789", "123-45-0000", "123 45 6789", "123456789",
    "A-123-45-6789",
    "1-123-45-6789", "123-45-6789-0", "123-45-67890", "x123-45-6789", "123-45-6789-A", "1.123-45-6789",
    "123-45-6789.0",
    # years, dates, ISBN, integers
    "2024", "1999-2000", "2024-01-02", "02/01/2024", "2024-01-02T10:00:00+01:00", "20240102", "1,234,567,890",
    "3.14159265358979",
    "ISBN 978-3-16-148410-0", "ISBN 9783161484100", "ISBN 3-16-148410-0", "ISBN 0306406152", "EAN 4006381333931",
    "4294967295", "2147483647", "550e8400-e29b-41d4-a716-446655440000", "123-456-7890", "212-155-0123", "211-555-0123",
    "212-911-0123", "212 555 0123", "2125550123", "555-0123", "212-555-01234", "1212-555-0123", "12-212-555-0123",
    "A212-555-0123",
    "SKU-212-555-0123", "212-555-0123-4", "212.555-0123", "+10 000 000 000", "+20 000 000 000", "+44 20 7946",
    "x+442079460958",
    "+28 123 456 7890", "+44207946095812345", "300 400 5000", "+7 912 345 67 8", "1+442079460958", "+1 911 555 01",
]  # fmt: skip


def redacted(texts: list[str | None], **options: Any) -> list[str | None]:
    frame = pd.DataFrame({TEXT: pd.Series(texts, dtype="str")})
    return [None if pd.isna(text) else text for text in curation.redact(frame, **options)[TEXT]]


@pytest.mark.parametrize("kind", FOUND)
def test_what_is_found(kind: str):
    marked = FOUND[kind]
    texts = [re.sub("[<>]", "", text) for text in marked]
    expected = [re.sub("<[^>]+>", kind, text) for text in marked]
    assert redacted(texts) == expected
    assert redacted(texts, types=[kind.removeprefix("[REDACTED]_").lower()]) == expected
    assert [redaction.redact(text)[0] for text in texts] == expected


def test_mail_in_angle_brackets():
    assert redacted(["Jo <me@host.dom>", "<this@Outer.name>"]) == [f"Jo <{EMAIL}>", f"<{EMAIL}>"]


def test_what_is_not_found():
    assert redacted(NOT_FOUND) == NOT_FOUND
    assert [redaction.redact(text)[0] for text in NOT_FOUND] == NOT_FOUND


def test_types_are_applied_in_a_fixed_order():
    text = "4111 1111 1111 1111, 123-45-6789, 212-555-0123, a@b.co, 81.2.3.54; 212-555-0123-a@b.co"
    expected = f"{CARD}, {SSN}, {PHONE}, {EMAIL}, {IP}; {EMAIL}"
    for types in (list(FINDERS), list(FINDERS)[::-1]):
        assert redacted([text], types=types) == [expected]
    assert redacted([text], types=["ssn"]) == [text.replace("123-45-6789", SSN)]


def test_the_replacement_is_taken_as_it_is():
    assert redacted(["a@b.co", "x 123-45-6789"], replacement=r"<{type}>\g<x>{}") == [
        r"<EMAIL>\g<x>{}",
        r"x <SSN>\g<x>{}",
    ]
    assert redacted(["a@b.co"], replacement="-") == ["-"]


def test_an_empty_replacement_deletes_matches_and_joins_no_numbers():
    texts = ["x a@b.co y", "a@b.co", "(212)a@b.co 555-0123", "a@b.co 81.3.2.54, 212-555-0123", None, "x"]
    assert redacted(texts, replacement="") == ["x  y", "", "(212) 555-0123", " , ", None, "x"]
    assert Redact(replacement="", types=("email",)).explain() == ["email -> nothing"]


def test_redacted_text_stays_as_it_is():
    texts = [re.sub("[<>]", "", text) for kind in FOUND for text in FOUND[kind]]
    once = redacted(texts)
    assert redacted(once) == once != texts


# Against plain Python

PIECES = [
    "a", "x", "Z", "é", "漢", " ", " ", "  ", "\n", ".", ".", "-", "-", "+", "(", ")", "/", ":", "::", "@", "_", "%",
    ",", "*", "0",
    "00", "1", "7", "12", "20", "31", "32", "44", "45", "123", "212", "911", "255", "256", "555", "666", "972",
    "0123", "6789", "0000",
    "4111", "1111", "4111111111111111", "411111111111111", "378282246310005", "822463", "10005", "3782",
    "30569309025904",
    "a@b.co", "b.co", "x.1.y", "2x.png", "xn--a", "1.2.3.4", "10.0.0", "192.168.0.1", "2001:db8", "fe80", "ff02::1",
    "1:2", "db8",
    "123-45-6789", "212-555-0123", "(212) 555-0123", "+1", "+44", "+7", "+212", "+49 (0)30 ", "20 7946 0958",
    "Version ", "section",
    "\u0661", "\uff11", "A", "- ", "\x00", "81.2.3.54", "this@", "me@", "x.name", "git@",
    "to:", "ip", "host ", "<", ">", "$",
]  # fmt: skip
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), st.sampled_from(PIECES), characters()), max_size=14).map("".join)


@given(st.lists(TEXTS, min_size=1, max_size=8))
@settings(deadline=None)
def test_any_text_as_plain_python(texts: list[str]):
    assert redacted(texts) == [redaction.redact(text)[0] for text in texts]


SHAPES = {
    "email": r"[ab.%+_-]{1,4}@([ab-]{1,3}\.){1,3}(co|xn--[ab-]{1,2}|c1)",
    "email 4": r"[ab.]{1,2}@\[?(1\.2\.3\.4|[01]{1,2}(\.[0-3]{1,3}){3}|IPv6:[0f:]{1,4})\]?[a.]?",
    "email in context": r"(<|to: ?|[a:])?(this|git|me|v)@(v1\.)?(a|1|orgA)\.(name|Id|COM|zzz|local)(>|\(|_a|:|/| <-)?",
    "ip in context": r"(host|ip|Version|v:|x\.ai|::ffff:|//)[ (\n\"'.]{0,2}(1|81)(\.(2|55)){3}(\"?, ?| port 8|/8|:8)?",
    "ip_address": r"(\n| |[Vv]ersion |-|a)?(25[456]|[0-9]|3[012])(\.(25[456]|[0-9]|[0-3][0-9])){3}[.]? ?[-Aa.1]?",
    "ip_address 6": r"[: a]?(2001|fe[8c]0|fd00)(:[0-9a]{1,2}){0,7}(::)?([0-9a]:){0,6}[0-9a]?[:. %]?",
    "credit_card": r"(4111|3[67]00|6011|3528|2720)([ -]?)[0-9]{4}\2[0-9]{4}\2[0-9]{2,7}[ .a-]?",
    "ssn": r"[-a. ]?(000|123|666|9[0-9]{2})-(00|12)-(0000|[0-9]{4})[-a. ]?[0-9]?",
    "phone": r"[-a+ ]?(1[ .-])?\(?(212|911|[2-9][0-9]{2})\)?[ ./-]?[2-9][0-9]{2}[ .-]?[0-9]{4}[-a. ]?[0-9]?",
    "phone +": r"\+(1|7|20|44|212|800|999|[0-9]{2})[ .-]?\(?0?\)?( ?[0-9]{1,4}){1,6}[-.x ]?",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_all_shapes_as_plain_python(shape: str):
    @given(
        st.lists(st.from_regex(SHAPES[shape], fullmatch=True), min_size=1, max_size=12), st.sampled_from(["", " ", ","])
    )
    @settings(deadline=None, max_examples=15)
    def compare(pieces: list[str], between: str) -> None:
        texts = [*pieces, between.join(pieces)]
        assert redacted(texts) == [redaction.redact(text)[0] for text in texts]

    compare()


@pytest.mark.parametrize("kind", FINDERS)
def test_check_digits_and_neighbours_as_plain_python(kind: str):
    """Every fourth example with each of its characters changed, and with each neighbour."""
    marked = FOUND[f"[REDACTED]_{kind.upper()}"]
    plain = [re.sub("[<>]", "", text) for text in marked if len(text) < 60][::4]
    texts = [
        f"{text[:k]}{char}{text[k + skip :]}"
        for text in plain
        for k in range(len(text) + 1)
        for char in "0.- a:"
        for skip in (0, 1)
    ]
    assert redacted(texts) == [redaction.redact(text)[0] for text in texts]


@pytest.mark.slow("every card issuer and country code is found, as in plain Python")
def test_every_issuer_and_country_as_plain_python():
    cards = [f"{first}{0:0{length - 4}}" for first in range(1000, 10000) for length in (13, 14, 15, 16, 19, 20)]
    cards = [f"{card[:-1]}{last}" for card in cards for last in range(10) if redaction.luhn(f"{card[:-1]}{last}")]
    phones = [f"+{code} 234 567 890" for code in range(1000)]
    assert len(cards) == 54_000
    for texts in (cards, phones):
        found = redacted(texts)
        assert found == [redaction.redact(text)[0] for text in texts] != texts


def test_long_texts_take_linear_time():
    """A pattern that begins anew at every character would need minutes for these."""
    pieces = [
        "a",
        "a.",
        "@a",
        "a@a.",
        "x@a-",
        "1",
        "1.",
        "1-",
        "4111 ",
        "(212) ",
        "+442 ",
        "2a00:",
        "::",
        "fe80::",
        "123-45-",
        "\n - ",
    ]
    texts = [(piece * 100_000)[:100_000] for piece in pieces]
    assert redacted([f"{text}|a@b.co" for text in texts]) == [f"{text}|{EMAIL}" for text in texts]


# Columns of every shape


def applied(engine, texts: list[str | None], **options: Any):
    frame, outcome = invoke.apply_stage(engine, frame_of(engine, texts), Redact(**options))
    assert engine.to_arrow(frame).column_names == [ROW, ID, TEXT]
    return engine.to_arrow(frame)[TEXT].to_pylist(), outcome


def test_nulls_and_counts(engine):
    texts = ["a@b.co a@b.co", None, "", "81.2.3.54 a@b.co", "nothing"]
    found, outcome = applied(engine, texts)
    assert found == [f"{EMAIL} {EMAIL}", None, "", f"{IP} {EMAIL}", "nothing"]
    assert outcome.edited.tolist() == [True, False, False, True, False] and outcome.verdict is None
    assert outcome.details == {"email": 3, "ip_address": 1, "credit_card": 0, "ssn": 0, "phone": 0}
    _, outcome = applied(engine, texts, types=("ssn", "email"))
    assert outcome.details == {"email": 3, "ssn": 0}


@pytest.mark.parametrize("texts", [[], [None], [""], ["nothing", None]])
def test_nothing_to_do(engine, texts):
    found, outcome = applied(engine, texts)
    assert found == texts and outcome.edited is None and not any(outcome.details.values())


def test_text_behind_a_null_is_not_looked_at(engine):
    table = hidden_nulls()
    data = table.column(TEXT).combine_chunks().buffers()[2].to_pybytes().replace(b"hidden", b"a@b.co")
    buffers = [*table.column(TEXT).combine_chunks().buffers()[:2], pa.py_buffer(data)]
    hidden = pa.LargeStringArray.from_buffers(3, buffers[1], buffers[2], buffers[0])
    frame, outcome = invoke.apply_stage(engine, engine.from_arrow(table.set_column(2, TEXT, hidden)), Redact())
    assert outcome.edited is None and engine.to_arrow(frame)[TEXT].to_pylist()[1] is None


def test_slices_and_chunks(engine):
    texts = ["x", "a@b.co", None, "81.2.3.54", "y 123-45-6789", "z"] * 3
    whole = pa.array(["0@0.co", *texts, "9@9.co"], pa.large_string()).slice(1, len(texts))
    expected = [None if text is None else redaction.redact(text)[0] for text in texts]
    for chunks in (
        [whole],
        [whole.slice(0, 4), whole.slice(4, 0), whole.slice(4)],
        [whole.slice(0, 1), whole.slice(1)],
    ):
        frame = engine.from_arrow(pa.table({TEXT: pa.chunked_array(chunks)}))
        assert engine.to_arrow(invoke.apply_stage(engine, frame, Redact())[0])[TEXT].to_pylist() == expected
        mask = np.arange(len(texts)) % 3 != 1
        some, _ = invoke.apply_stage(engine, engine.filter_rows(frame, mask), Redact())
        assert engine.to_arrow(some)[TEXT].to_pylist() == [
            text for text, kept in zip(expected, mask, strict=True) if kept
        ]


def test_nasty_texts():
    texts = [text for text in NASTY if len(text) < 100_000]
    assert redacted(texts) == [redaction.redact(text)[0] for text in texts]


# Runs


def texts_with_data() -> list[str]:
    data = ["a@b.co", "81.2.3.54", "4111 1111 1111 1111", "123-45-6789", "(212) 555-0123"]
    return [f"{text} {data[k % 7]} and {data[k % 3]}" if k % 7 < 5 else text for k, text in enumerate(made_texts(90))]


STAGES = [{"kind": "exact_dedup"}, {"kind": "redact"}, {"kind": "filter", "rules": [{"measure": "words", "min": 5}]}]


def test_a_run_counts_what_was_replaced(tmp_path):
    path = tmp_path / "in.jsonl"
    texts = texts_with_data()
    path.write_bytes(records_of(texts) + b"no json\n")
    recipe = recipe_of(path, stages=STAGES, output={"formats": []})
    report = run(recipe, tmp_path / "out", engine="cpu", workers=2, slice_bytes=4000).report
    assert verify(tmp_path / "out") == []
    unique = list(dict.fromkeys(texts))
    outcomes = [redaction.redact(text) for text in unique]
    expected = [text for text, _ in outcomes if len(text.split()) >= 5]
    assert [text for *_, text in kept_rows(tmp_path / "out")] == expected
    stage = report["stages"][1]
    assert stage["documents_in"] == stage["documents_out"] == len(unique) and stage["reasons"] == {}
    assert stage["edited"] == sum(any(counts.values()) for _, counts in outcomes) > 20
    totals = {name: sum(counts[name.upper()] for _, counts in outcomes) for name in FINDERS}
    assert stage["details"] == totals and all(totals.values())
    assert stage["bytes_out"] == sum(len(text.encode()) for text, _ in outcomes) != stage["bytes_in"]
    line = "redact: " + ", ".join(f"{name} {count:,}" for name, count in totals.items())
    assert line in (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "[redact]" not in report["funnel"]


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("types: []", "types is empty; list one or more of email, ip_address"),
        ("types: [emails]", "no type 'emails' of personal data or secrets; did you mean email"),
        ("types: email", "Expected `array`"),
        (f"replacement: '{'x' * 101}'", "replacement has 101 characters, expected at most 100: each match becomes"),
        ("replacement: 'x@y'", "replacement must be text without digits"),
        ("replacement: '000-00-0000'", "replacement must be text without digits"),
        ("kinds: [email]", "unknown field `kinds`"),
    ],
)
def test_wrong_settings_are_refused(options: str, message: str):
    with pytest.raises(RecipeError, match=message) as error:
        parse_recipe(f"stages:\n- {{kind: redact, {options}}}\n")
    assert "$.stages[0]" in str(error.value)
