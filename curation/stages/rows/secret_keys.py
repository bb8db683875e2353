# SPDX-License-Identifier: Apache-2.0
"""Patterns of secrets for `redact`: keys and tokens of common services, in the forms that the services document.

A secret begins with a prefix that only its service uses, or follows a name such as `AccountKey`. Placeholders of few
different characters, such as `ghp_xxxx`, stay. The comment of each pattern names the page with its form. As in
`personal_data`, RE2 selects documents, and repetitions are bounded.
"""

from __future__ import annotations

import re

from curation.stages.rows.personal_data import Finder, compiled

MIN_DIFFERENT = 10  # characters
BEFORE, AFTER = r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9_])"
URL_SAFE = "[A-Za-z0-9_-]"


def _is_no_placeholder(match: re.Match[str]) -> bool:
    return len({*match[0]}) >= MIN_DIFFERENT


def _is_mixed(match: re.Match[str]) -> bool:
    """Return whether the value has digits, capital and small letters, which hexadecimal hashes do not have."""
    value = match["value"]
    return _is_no_placeholder(match) and all(re.search(kind, value) for kind in ("[0-9]", "[A-Z]", "[a-z]"))


def _key(hint: str, form: str, after: str = AFTER) -> Finder:
    return Finder(hint, compiled(rf"{BEFORE} (?: {form} ) {after}"), _is_no_placeholder)


SECRETS: dict[str, Finder] = {  # in the order of application: secrets that may contain others come first
    # RFC 7468, sections 10 and 11; OpenSSH, PROTOCOL.key; RFC 9580, section 6.2 (OpenPGP)
    "private_key": Finder(
        r"-----BEGIN [A-Z0-9 ]{0,84}PRIVATE KEY",
        compiled(
            r"""-----BEGIN[ ] (?P<label> (?: [A-Z0-9]{1,20} [ ] ){0,4} PRIVATE[ ]KEY (?: [ ]BLOCK )? )-----
                (?: [^-] | -(?!----) ){64,20000}+ -----END[ ](?P=label)-----"""
        ),
        _is_no_placeholder,
    ),
    # RFC 7519 in the compact form of RFC 7515, section 3.1: both objects begin with `{"`
    "jwt": _key(
        r"eyJ[A-Za-z0-9_-]{10}",
        rf"(?<!-) eyJ{URL_SAFE}{{10,8192}}+ \. eyJ{URL_SAFE}{{10,8192}}+ \. {URL_SAFE}{{10,1024}}+",
    ),
    # AWS, IAM User Guide, "IAM identifiers": AKIA is an access key, ASIA a temporary one
    "aws_access_key": _key("A[KS]IA[A-Z2-7]{4}", "A[KS]IA[A-Z2-7]{16}"),
    # AWS, IAM User Guide, "Manage access keys": 40 characters of base64 after their name
    "aws_secret_key": Finder(
        r"(?i)secret[_. -]?(?:access[_. -]?)?key",
        compiled(
            r"""(?i: secret [_.\x20-]? (?: access [_.\x20-]? )? key ) ["']? [ \t]{0,4} (?: => | [:=] ) [ \t]{0,4} ["']?
                (?P<value> [A-Za-z0-9/+]{40} ) (?![A-Za-z0-9/+=])"""
        ),
        _is_mixed,
    ),
    # Microsoft Learn, "Configure Azure Storage connection strings": 64 bytes of base64
    "azure_storage_key": Finder(
        "AccountKey=", compiled(r"AccountKey= (?P<value> [A-Za-z0-9/+]{86}== )"), _is_no_placeholder
    ),
    # GitHub Docs, "About authentication to GitHub"; GitHub Changelog, 31 March 2021: up to 255 characters
    "github_token": _key(
        "gh[opsur]_[A-Za-z0-9]{4}|github_pat_", "gh[opsur]_[A-Za-z0-9]{36,251}+ | github_pat_[A-Za-z0-9_]{50,244}+"
    ),
    # GitLab Docs, "GitLab token overview", token prefixes
    "gitlab_token": _key(
        "gl(?:pat|oas|dt|rt|rtr|cbt|ptt|ft|imt|agent|wt|soat|ffct)-",
        rf"gl(?:pat|oas|dt|rtr?|cbt|ptt|ft|imt|agent|wt|soat|ffct)-{URL_SAFE}{{20,300}}+"
        r"(?: \.[0-9a-z]{2}\.[0-9a-z]{7,9} )?",
    ),
    # Slack, "Token types" and "Sending messages using incoming webhooks"
    "slack_token": _key(
        r"xox[abeoprs]-|xapp-[0-9]|xwfp-|hooks\.slack\.com/",
        r"""(?: xoxe\. )? xox[abeoprs]-[A-Za-z0-9-]{20,300}+ | xwfp-[A-Za-z0-9-]{20,300}+
            | xapp-[0-9]-[A-Z0-9]{8,20}-[0-9]{8,20}-[0-9a-f]{32,128}+
            | https://hooks\.slack\.com/(?: services | workflows | triggers )/[A-Za-z0-9/_]{30,120}+""",
    ),
    # Stripe Docs, "API keys" (publishable keys stay), and "Webhooks"
    "stripe_key": _key(
        "[rs]k_(?:live|test)_|whsec_", "[rs]k_(?: live | test )_[A-Za-z0-9]{16,247}+ | whsec_[A-Za-z0-9/+]{32,64}+"
    ),
    # Google Cloud, "Manage API keys": 39 characters
    "google_api_key": _key("AIza[A-Za-z0-9_-]{4}", f"AIza{URL_SAFE}{{35}}", f"(?!{URL_SAFE})"),
    # GitHub Blog, "Announcing npm's new access token format"
    "npm_token": _key("npm_[A-Za-z0-9]{8}", "npm_[A-Za-z0-9]{36}"),
    # PyPI, "How can I use API tokens"; a macaroon of version 2 begins with its location, pypi.org or test.pypi.org
    "pypi_token": _key("pypi-AgE", f"pypi-AgE(?: IcHlwaS5vcmc | NdGVzdC5weXBpLm9yZw ){URL_SAFE}{{50,1000}}+"),
    # Hugging Face Docs, "User access tokens"
    "huggingface_token": _key("hf_[A-Za-z0-9]{8}", "hf_[A-Za-z0-9]{34}"),
    # OpenAI; no page states the form. Scanners find keys by the base64 of `OpenAI` inside
    "openai_key": _key("T3BlbkFJ", rf"sk-{URL_SAFE}{{20,120}}T3BlbkFJ{URL_SAFE}{{20,120}}+"),
    # Anthropic, API keys; no page states their length
    "anthropic_key": _key("sk-ant-", rf"sk-ant-[a-z]{{2,8}}[0-9]{{2}}-{URL_SAFE}{{80,200}}+"),
    # Twilio Docs, "SendGrid API keys": 69 characters in three parts
    "sendgrid_key": _key(r"SG\.[A-Za-z0-9_-]{8}", rf"SG\.{URL_SAFE}{{22}}\.{URL_SAFE}{{43}}", f"(?!{URL_SAFE})"),
    # DigitalOcean Docs, "How to Create a Personal Access Token"
    "digitalocean_token": _key("do[opr]_v1_", "do[opr]_v1_[0-9a-f]{64}"),
    # Shopify changelog, "Length of the Shopify access token is increasing", "App secret key length has increased"
    "shopify_token": _key("shp(?:at|ca|pa|ss)_", "shp(?: at | ca | pa | ss )_[0-9A-Fa-f]{32}"),
    # HashiCorp Vault, "Tokens", token prefixes
    "vault_token": _key(r"hv[bsr]\.[A-Za-z0-9_-]{8}", rf"hv[bsr]\.{URL_SAFE}{{24,300}}+"),
    # Telegram, Bot API, "Authorizing your bot"
    "telegram_token": _key(
        "[0-9]{8}:[A-Za-z0-9_-]{8}", rf"(?<![.:-]) [0-9]{{8,10}}:{URL_SAFE}{{35}}", f"(?!{URL_SAFE})"
    ),
}
