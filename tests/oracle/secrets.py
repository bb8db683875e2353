# SPDX-License-Identifier: Apache-2.0
"""Secrets in plain Python: the forms that begin with a prefix, as parts that are read one after the other, as far as
each reaches."""

import string

LETTERS, DIGITS = string.ascii_letters, string.digits
ALNUM = LETTERS + DIGITS
WORD = ALNUM + "_"
URL_SAFE = WORD + "-"
BASE64 = ALNUM + "/+"
HEX = DIGITS + "abcdef"

Part = str | tuple[str, int, int]  # a literal, or characters with the least and the largest number


def any_of(prefixes: str, *parts: Part) -> list[list[Part]]:
    return [[prefix, *parts] for prefix in prefixes.split()]


def body(low: int, high: int = 0, characters: str = ALNUM) -> tuple[str, int, int]:
    return characters, low, high or low


ROUTING = (".", (DIGITS + string.ascii_lowercase, 2, 2), ".", (DIGITS + string.ascii_lowercase, 7, 9))
GITLAB = "glpat- gloas- gldt- glrt- glrtr- glcbt- glptt- glft- glimt- glagent- glwt- glsoat- glffct-"
SLACK = "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xwfp-"
SLACK_URLS = " ".join(f"https://hooks.slack.com/{kind}/" for kind in ("services", "workflows", "triggers"))

FORMS: dict[str, list[list[Part]]] = {
    "jwt": [["eyJ", body(10, 8192, URL_SAFE), ".", "eyJ", body(10, 8192, URL_SAFE), ".", body(10, 1024, URL_SAFE)]],
    "aws_access_key": any_of("AKIA ASIA", body(16, 16, string.ascii_uppercase + "234567")),
    "github_token": [
        *any_of("ghp_ gho_ ghu_ ghs_ ghr_", body(36, 251)),
        *any_of("github_pat_", body(50, 244, WORD)),
    ],
    "gitlab_token": [
        *any_of(GITLAB, body(20, 300, URL_SAFE), *ROUTING),
        *any_of(GITLAB, body(20, 300, URL_SAFE)),
    ],
    "slack_token": [
        *([["xoxe.", prefix, body(20, 300, ALNUM + "-")] for prefix in SLACK.split()[:-1]]),
        *any_of(SLACK, body(20, 300, ALNUM + "-")),
        [
            "xapp-", body(1, 1, DIGITS), "-", body(8, 20, string.ascii_uppercase + DIGITS), "-", body(8, 20, DIGITS),
            "-", body(32, 128, HEX),
        ],
        *any_of(SLACK_URLS, body(30, 120, WORD + "/")),
    ],
    "stripe_key": [
        *any_of("sk_live_ sk_test_ rk_live_ rk_test_", body(16, 247)),
        ["whsec_", body(32, 64, BASE64)],
    ],
    "google_api_key": [["AIza", body(35, 35, URL_SAFE)]],
    "npm_token": [["npm_", body(36)]],
    "pypi_token": any_of("pypi-AgEIcHlwaS5vcmc pypi-AgENdGVzdC5weXBpLm9yZw", body(50, 1000, URL_SAFE)),
    "huggingface_token": [["hf_", body(34)]],
    "anthropic_key": [["sk-ant-", body(2, 8, LETTERS[:26]), body(2, 2, DIGITS), "-", body(80, 200, URL_SAFE)]],
    "sendgrid_key": [["SG.", body(22, 22, URL_SAFE), ".", body(43, 43, URL_SAFE)]],
    "digitalocean_token": any_of("dop_v1_ doo_v1_ dor_v1_", body(64, 64, HEX)),
    "shopify_token": any_of("shpat_ shpca_ shppa_ shpss_", body(32, 32, HEX + "ABCDEF")),
    "vault_token": any_of("hvs. hvb. hvr.", body(24, 300, URL_SAFE)),
    "telegram_token": [[body(8, 10, DIGITS), ":", body(35, 35, URL_SAFE)]],
}  # fmt: skip
NOT_BEFORE = {"jwt": WORD + "-", "telegram_token": WORD + ".:-"}
NOT_AFTER = dict.fromkeys(("google_api_key", "sendgrid_key", "telegram_token"), URL_SAFE)


def end_of(text: str, start: int, parts: list[Part]) -> int:
    """The end of a form that begins at `start`; -1 if it does not."""
    for part in parts:
        if isinstance(part, str):
            if not text.startswith(part, start):
                return -1
            start += len(part)
            continue
        characters, low, high = part
        count = 0
        while start + count < len(text) and text[start + count] in characters and count < high:
            count += 1
        if count < low:
            return -1
        start += count
    return start


def found_at(name: str, text: str, start: int) -> int:
    """The end of the secret that begins at `start`; 0 if none does."""
    if start and text[start - 1] in NOT_BEFORE.get(name, WORD):
        return 0
    for parts in FORMS[name]:
        end = end_of(text, start, parts)
        if end > 0 and not (end < len(text) and text[end] in NOT_AFTER.get(name, WORD)):
            return end if len({*text[start:end]}) >= 10 else 0
    return 0


def redact(text: str, names: list[str]) -> str:
    """The text with secrets of these types, one type after the other, replaced by `[REDACTED]_<TYPE>`."""
    for name in names:
        done, start = "", 0
        while start < len(text):
            end = found_at(name, text, start)
            done += f"[REDACTED]_{name.upper()}" if end else text[start]
            start = end or start + 1
        text = done
    return text
