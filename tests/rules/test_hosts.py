# SPDX-License-Identifier: Apache-2.0
"""The host of a URL. Expected values are those of browsers (URL Standard, UTS #46), but for names that no host has."""

import random

import pyarrow as pa
import pytest

from curation.rules.hosts import host_of, hosts_of

HOSTS = {
    "http://Example.COM:80/x": "example.com",
    "https://user:p@ss@example.com./?q=a@b": "example.com",
    "example.com": "example.com",
    "localhost:8080/x": "localhost",
    "//example.com/a": "example.com",
    "http:example.com": "example.com",
    "http:\\\\a.b\\c": "a.b",
    "  http:///a.b/ \n": "a.b",
    "http://x.y#@w": "x.y",
    ".a_b..c.": "a_b..c",
    "file:///etc/x": "",
    "/relative/path": "",
    "https://": "",
    "http://a:1:2/": "",
    "http://a.b:port/": "",
    "http://a b.c/": "",
    "hello world": "",
    "javascript:void(0)": "",
    "": "",
    "http://192.168.0.1:8/": "192.168.0.1",
    "http://[0:0::1]:80/": "::1",
    "http://u:p@[::1]/": "::1",
    "http://u@ü@ä.de/": "xn--4ca.de",
    "http://[::1]x/": "",
    "http://[nope]/": "",
    "https://日本.jp/": "xn--wgv71a.jp",
    "http://%E6%97%A5本。jp": "xn--wgv71a.jp",
    "https://MÜLLER.de": "xn--mller-kva.de",
    "https://xn--MLLER-kva.de": "xn--mller-kva.de",
    "http://faß.ΣΑΣ": "xn--fa-hia.xn--mxa9ab",
    "http://a.b\u00adc.d": "a.bc.d",
    "http://a%2Eb.c/": "a.b.c",
    "http://a%40b.c/": "",
    "http://%ff.jp": "",
}


@pytest.mark.parametrize("url", HOSTS)
def test_the_host_of_a_url(url: str):
    assert host_of(url) == HOSTS[url]


def test_a_column_has_the_same_hosts():
    letters, chosen = "aB.:/@[]\\?#% 日ü-_1\n", random.Random(1)
    urls = [*HOSTS, *("".join(chosen.choices(letters, k=length % 12)) for length in range(4000))]
    urls += [f"http://{url}" for url in urls]
    column = pa.chunked_array([urls[:9], [None], urls[9:]], pa.string())
    expected = [host_of(url) or None for url in urls]
    assert hosts_of(column).to_pylist() == [*expected[:9], None, *expected[9:]]
    assert hosts_of(pa.array([], pa.string())).to_pylist() == []
