# SPDX-License-Identifier: Apache-2.0
"""Secrets, private addresses and counts: what `redact` finds beyond personal data, and the columns of its counts."""

import base64
import ipaddress
import random
import re
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import curation
from curation.base.contract import TEXT
from curation.base.errors import RecipeError
from curation.recipes.recipe import parse_recipe
from curation.running.run import run
from curation.stages import MeasureStage, Redact, invoke
from curation.stages.rows.personal_data import FINDERS
from curation.stages.rows.private_addresses import NETWORKS, is_private
from curation.stages.rows.secret_keys import SECRETS
from tests.conftest import frame_of
from tests.corpus import NASTY
from tests.oracle import secrets
from tests.runs import kept_rows, recipe_of, records_of, removed_rows

DICE = random.Random(5)


def made(length: int, characters: str = secrets.ALNUM) -> str:
    """Made characters. No secret is written out here: scanners of repositories would report it."""
    return "".join(DICE.sample(characters, min(10, length, len(characters)))).ljust(length, characters[3])


def example(parts: list[secrets.Part]) -> str:
    return "".join(part if isinstance(part, str) else made(part[1], part[0]) for part in parts)


FORMS = [(name, example(parts)) for name, forms in secrets.FORMS.items() for parts in forms]
LINES = "\n".join(made(64, secrets.BASE64) for _ in range(3))
KEYS = [
    f"-----BEGIN {label}-----\n{LINES}\n-----END {label}-----"
    for label in ("PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY", "ENCRYPTED PRIVATE KEY")
]
PGP = f"-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: x-1\n\n{LINES}\n=abcd\n-----END PGP PRIVATE KEY BLOCK-----"
VALUE = "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY"  # of AWS's own pages
AZURE, OPENAI = made(86, secrets.BASE64) + "==", f"sk-proj-{made(40)}T3Blbk" + f"FJ{made(40)}"
NAMED = [  # type, text, the secret in it
    ("aws_secret_key", f"aws_secret_access_key = {VALUE}\n", VALUE),
    ("aws_secret_key", f'"SecretAccessKey": "{VALUE}",', VALUE),
    ("aws_secret_key", f"export AWS_SECRET_KEY='{VALUE}'", VALUE),
    ("azure_storage_key", f"AccountName=a;AccountKey={AZURE};", AZURE),
    ("private_key", f"a\n{KEYS[0]}\nb", KEYS[0]),
    ("private_key", KEYS[1].replace("\n", "\\n") + '",', KEYS[1].replace("\n", "\\n")),
    *(("private_key", key, key) for key in (*KEYS[2:], PGP)),
    ("openai_key", OPENAI, OPENAI),
]
NOT_FOUND = [
    "ghp_" + "x" * 36, "AKIA" + "X" * 16, "xghp_" + made(36), "ghp_" + made(35), "ghp_" + made(36) + "_",
    "AKIAIOSFODNN7EXAMPL", "AKIAIOSFODNN7EXAMPLEX", "pk_live_" + made(24), "sk_live_KEY", "npm_config_registry",
    "eyJhbGciOiJIUzI1NiJ9", "eyJhbGciOiJIUzI1NiJ9.payload.signature", "AIza" + made(36), "glpat-short",
    "secret_key: " + made(40, secrets.HEX), f"secret_key_id = {VALUE}x", VALUE, "hvs.short", "SG.a.b",
    "-----BEGIN PUBLIC KEY-----\n" + LINES + "\n-----END PUBLIC KEY-----",
    "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----\n" + LINES + "\n-----END PRIVATE KEY-----",
    "2024-01-02T10:20:30 12345678:00", "pypi-" + made(60), "hf_hub_download", "T3Blbk" + "FJ",
]  # fmt: skip


def redacted(texts: list[str | None], **options: Any) -> list[str | None]:
    frame = pd.DataFrame({TEXT: pd.Series(texts, dtype="str")})
    return [None if pd.isna(text) else text for text in curation.redact(frame, **options)[TEXT]]


@pytest.mark.parametrize("name", SECRETS)
def test_what_is_found(name: str):
    mark = f"[REDACTED]_{name.upper()}"
    pairs = [(f"see {text}.", f"see {mark}.") for found, text in FORMS if found == name]
    pairs += [(text, text.replace(value, mark)) for found, text, value in NAMED if found == name]
    texts, expected = [text for text, _ in pairs], [text for _, text in pairs]
    assert pairs and redacted(texts, types=name) == expected != texts
    assert redacted(texts, types="secret") == [text.replace(mark, "[REDACTED]_SECRET") for text in expected]
    assert redacted(texts, types=name, replacement="") == [text.replace(mark, "") for text in expected]


def test_what_is_not_found():
    assert redacted(NOT_FOUND, types="secret") == NOT_FOUND
    texts = [text for _, text in FORMS]
    types = [name for name in FINDERS if name != "phone"]  # digits of made tokens
    assert Redact().types == tuple(FINDERS) and redacted(texts, types=types) == texts


def test_prefixes_that_are_computed():
    """A macaroon of version 2: the version, its location as a field of type 1 with its length, a field of type 2."""
    hosts = (b"pypi.org", b"test.pypi.org")
    for host, parts in zip(hosts, secrets.FORMS["pypi_token"], strict=True):
        begin = base64.b64encode(b"\x02\x01" + bytes([len(host)]) + host + b"\x02").decode()
        assert begin.startswith(parts[0].removeprefix("pypi-"))
    assert base64.b64encode(b"OpenAI").decode() == "T3Blbk" + "FJ"
    assert all(base64.b64encode(b'{"' + letter.encode()).startswith(b"eyJ") for letter in secrets.LETTERS)


PIECES = [text for _, text in FORMS] + [*" .-_:=/\n", "a", "x" * 30, made(12), "xoxe.", "eyJ", "é"]


@given(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join),
    st.integers(0, 200),
    st.sampled_from(["", *"-_.a Z0"]),
)
@settings(deadline=None, max_examples=30)
def test_any_text_as_plain_python(text: str, place: int, put: str):
    """Texts of secrets and their edges, with a character put in or taken out."""
    changed = text[:place] + put + text[place + 1 :] if place < len(text) else text
    names = [name for name in SECRETS if name in secrets.FORMS]
    assert redacted([text, changed], types=names) == [secrets.redact(each, names) for each in (text, changed)]


def test_nasty_texts_have_no_secrets():
    texts = [text for text in NASTY if len(text) < 100_000]
    assert redacted(texts, types="secret") == texts


def test_long_texts_take_linear_time():
    pieces = [
        "eyJ",
        "-eyJ",
        "eyJaaaaaaaaaa.",
        "ghp_",
        "-----BEGIN PRIVATE KEY-----",
        "secret key = ",
        "1",
        "sk-",
        "sk-ant-api03-",
        "xoxb-1-",
    ]
    texts = [(piece * 200_000)[:200_000] for piece in pieces]
    key = " AKIA" + "IOSFODNN7EXAMPLE"
    found = redacted([text + key for text in texts], types="secret")
    assert [text[-18:] for text in found] == [" [REDACTED]_SECRET"] * len(texts)


def test_secrets_are_replaced_first_and_counted(engine: Any):
    token = "xox" + "b-212-555-0123-" + made(20)
    texts = [f"{token} 212-555-0123 a@b.co", None, f"{FORMS[1][1]} {FORMS[3][1]}", "x"]
    stage = Redact(types=("email", "phone", "secret", FORMS[3][0]))
    frame, outcome = invoke.apply_stage(engine, frame_of(engine, texts), stage)
    mark = f"[REDACTED]_{FORMS[3][0].upper()}"
    expected = ["[REDACTED]_SECRET [REDACTED]_PHONE [REDACTED]_EMAIL", None, f"[REDACTED]_SECRET {mark}", "x"]
    assert engine.to_arrow(frame)[TEXT].to_pylist() == expected
    assert outcome.details == {"secret": 2, FORMS[3][0]: 1, "email": 1, "phone": 1}
    assert stage.explain()[0] == "secret -> [REDACTED]_SECRET" and len(stage.explain()) == 4


# Addresses

KEPT = [  # of a peer's tests: addresses that it keeps by default
    "0.1.2.3", "172.16.0.9", "172.16.4.1", "172.17.1.1", "127.0.0.2", "10.0.1.5", "10.0.0.1", "10.155.155.155",
    "10.255.255.254", "172.16.0.4", "172.16.0.1", "172.31.254.254", "192.168.1.2", "192.168.254.0",
    "0.0.0.0", "169.254.1.1", "100.64.0.1", "192.0.2.1", "198.18.0.1", "255.255.255.255", "240.0.0.1", "fe80::1",
    "fd00::1:2", "2001:db8::1", "3fff:fff::1", "100.127.255.255", "198.19.255.255", "169.254.255.255", "192.0.0.255",
    "203.0.113.255", "198.51.100.0", "febf::1", "2001:2::1",
]  # fmt: skip
REPLACED = [
    "8.8.8.8", "163.36.107.25", "214.70.227.4", "172.15.255.255", "172.32.0.0", "11.0.0.1", "9.255.255.255",
    "126.1.2.3",
    "192.167.1.1", "100.63.255.255", "100.128.0.0", "224.0.0.1", "2a00:1450::1", "2001:4860::8888", "ff02::1",
]  # fmt: skip


@pytest.mark.parametrize("patterns", ["checked", "published"])
def test_private_addresses_stay(patterns: str):
    kept, replaced = (
        [address for address in addresses if patterns == "checked" or ":" not in address]
        for addresses in (KEPT, REPLACED)
    )
    options = {"patterns": patterns, "types": ["ip_address"]}
    assert redacted([f"host {address} now" for address in kept], private="keep", **options) == [
        f"host {a} now" for a in kept
    ]
    marks = ["host [REDACTED]_IP_ADDRESS now"]
    assert redacted([f"host {address} now" for address in replaced], private="keep", **options) == marks * len(replaced)
    if patterns == "checked":  # prefixes of one group, such as fe80::, are no hosts
        kept = [address for address in kept if not re.fullmatch(r"\w+::|::1?", address)]
    assert redacted([f"host {address} now" for address in kept], private="replace", **options) == marks * len(kept)
    assert redacted(["10.0.0.1, 8.8.8.8 and 127.0.0.1"], private="keep", **options) == [
        "10.0.0.1, [REDACTED]_IP_ADDRESS and 127.0.0.1"
    ]
    if patterns == "published":
        others = ["999.1.1.1", "010.0.0.1", "10.0.0.1.8.8"]
        assert redacted(others, private="keep", **options) == [marks[0][5:-4]] * 2 + ["10.0.0.1.8.8"]


def test_networks_are_those_of_python_where_both_know_them():
    for network in NETWORKS:
        first, last = str(network[0]), str(network[-1])
        assert is_private(first) and is_private(last)
        if first not in ("3fff::", "192.0.0.0"):  # newer than some versions of Python
            assert not ipaddress.ip_address(first).is_global
        below, above = int(network[0]) - 1, int(network[-1]) + 1
        ends = [type(network[0])(each) for each in (below, above) if 0 <= each < 1 << network.max_prefixlen]
        assert [str(each) for each in ends if is_private(str(each))] == {"::": ["::1"], "::1": ["::"]}.get(first, [])
    assert not is_private("no address")


# Counts


def test_counts_are_those_of_redact(engine: Any):
    texts = ["a@b.co 81.2.3.54 a@b.co 10.0.0.1", None, "", "+44 20 7946 0958", f"{FORMS[1][1]} 4111 1111 1111 1111"]
    types = ("email", "ip_address", "phone", "secret")
    frame, outcome = invoke.apply_stage(engine, frame_of(engine, texts), MeasureStage(personal_data=types))
    table = engine.to_arrow(frame)
    assert [str(table.schema.field(f"{name}_count").type) for name in types] == ["int64"] * 4
    assert table.select([f"{name}_count" for name in types]).to_pydict() == {
        "email_count": [2, 0, 0, 0, 0], "ip_address_count": [1, 0, 0, 0, 0], "phone_count": [0, 0, 0, 1, 0],
        "secret_count": [0, 0, 0, 0, 1],
    }  # fmt: skip
    assert table[TEXT].to_pylist() == texts and outcome.edited is None
    all_shapes = MeasureStage(personal_data=types, patterns="shape", private="replace")
    frame, _ = invoke.apply_stage(engine, frame_of(engine, texts), all_shapes)
    assert engine.to_arrow(frame)["ip_address_count"].to_pylist() == [2, 0, 0, 0, 0]
    _, replaced = invoke.apply_stage(engine, frame_of(engine, texts), Redact(types=types))
    assert replaced.details == {name: sum(table[f"{name}_count"].to_pylist()) for name in types}


def test_a_rule_on_a_count(tmp_path):
    texts = ["a@b.co " * count + f"text {count}" for count in range(8)]
    (tmp_path / "in.jsonl").write_bytes(records_of(texts))
    stages = [
        {"kind": "measure", "personal_data": ["email"]},
        {"kind": "filter", "rules": [{"column": "email_count", "max": 5, "reason": "many_emails"}]},
    ]
    run(
        recipe_of(tmp_path / "in.jsonl", stages=stages, output={"formats": []}),
        tmp_path / "out",
        engine="cpu",
        slice_bytes=50,
    )
    assert [text for *_, text in kept_rows(tmp_path / "out")] == texts[:6]
    assert [row[4:6] for row in removed_rows(tmp_path / "out")] == [("many_emails", 6.0), ("many_emails", 7.0)]


def test_columns_and_kernels_of_counts():
    stage = MeasureStage(names=("words",), personal_data=("email",))
    assert stage.writes() == {"words": "int64", "email_count": "int64"} and stage.kernels() == ("measures",)
    alone = MeasureStage(personal_data=("email", "ssn"))
    assert alone.writes() == {"email_count": "int64", "ssn_count": "int64"} and alone.kernels() == ()


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ("kind: redact, types: [secrets]", "no type 'secrets' of personal data or secrets; did you mean secret"),
        ("kind: redact, types: [github]", "no type 'github' of personal data or secrets"),
        ("kind: redact, private: false", "Expected `str`, got `bool`"),
        ("kind: redact, private: remove", "private must be one of replace, keep, not 'remove'"),
        (
            "kind: redact, private: replace, types: [email]",
            "private: replace is about IP addresses; add ip_address to types",
        ),
        ("kind: measure, personal_data: [mail]", "no type 'mail' of personal data or secrets; did you mean email"),
        ("kind: measure, private: replace", "patterns and private need personal_data; list types there, or leave"),
        ("kind: measure, personal_data: email", "Expected `array`"),
    ],
)
def test_wrong_settings_are_refused(stage: str, message: str):
    with pytest.raises(RecipeError, match=message):
        parse_recipe(f"stages:\n- {{{stage}}}\n")
