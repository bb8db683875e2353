# SPDX-License-Identifier: Apache-2.0
"""`rewrite: {markup: strip}`: tags of HTML by hand, against plain Python, and in hostile pages."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.stages import Rewrite, invoke
from curation.stages.rows import tags
from curation.stages.rows.tags import strip_tags
from tests.conftest import frame_of
from tests.oracle import rewriting

KEPT = (
    "faster (p < 0.05), and slower (q > 0.1)", "if a<b and c>d; i<n && j>m", "a < b > c", "<>", "< b>x</ b>", "</>",
    "List<String> a = new ArrayList<String>(); Map<Path, A> Vec<U> Box<P> impl<S> <T>",
    "#include <stdio.h>\n<map>",
    "Jane <jane@example.org> of <https://example.org/a>", "cp <source> <address> [<option>]", "<custom-tag a='b'>",
    "<b c>x</b", "<a href='x'y=\"z\" q>", "</p class='x'", '<a href="x>',
    "I make <$2k/month, the key is H4<bE77]7oQL, JS < Python, I <3 it",
    "<!-- open", "<!ELEMENT a (b)>", "<?php x ?>",
    "<b\u00a0id='x'>", "<\u212abd>", "<a b=c\u2028d", "x<!\u2010- y -->",
)  # fmt: skip
STRIPPED = (  # text, what is left
    ("a <b>c</b> < 2", "a c < 2"),
    ("one<br>two<p>three</p><p>four</p>", "one\ntwo\nthree\nfour"),
    ("<ul><li>one<li>two</ul>\nthree<hr/>four<BR clear=all>five", "one\ntwo\nthree\nfour\nfive"),
    ("<div>\n  <p>one</p>\r\n</div>two", "\n  one\r\ntwo"),
    ("<tr><td>1</td><td>2</td><th>3</th></tr><tr>", "1 2 3 \n"),
    ("<A HREF=f?x=1>a</A>, <img src='a>b'\nalt=\"<b>\"/>b <input type=x checked>c<path/>", "a, b c"),
    ("H<SUB>2</SUB>O, un<wbr>broken, <span data-x class = 'y' >x</span >", "H2O, unbroken, x"),
    ("<!DOCTYPE html><?xml version='1.0'?>a<!-- b > <i> -- c -->d<!-->e<!--->f<![if !IE]>g<![endif]>", "adefg"),
    ("List<A> and <a href='x'>x</a>, <p:x>", "List<A> and x, <p:x>"),
)  # fmt: skip


def test_tags_go_and_other_brackets_stay(engine: Any):
    cases = [*((text, text) for text in KEPT), *STRIPPED]
    frame, outcome = invoke.apply_stage(engine, frame_of(engine, [text for text, _ in cases]), Rewrite(markup="strip"))
    assert engine.to_arrow(frame)["text"].to_pylist() == [right for _, right in cases]
    assert outcome.edited.tolist() == [text != right for text, right in cases]
    assert [rewriting.strip_tags(text) for text, _ in cases] == [right for _, right in cases]


PARTS = st.sampled_from((
    *"<>/='\" \t\n\rPaé", "<a", "<p>", "</p>", "<P>", "<td>", "<br/>", "</a", " x='", " b=1", " checked", "data-x",
    "<!--", "-->", "<!doctype", "<![if", "]>", "<T>",
))  # fmt: skip
PAGES = st.lists(PARTS, max_size=20).map("".join)


@given(PAGES)
@settings(deadline=None, max_examples=60)
def test_any_page_as_plain_python(text: str):
    assert strip_tags(text) == rewriting.strip_tags(text)
    assert rewriting.find_tags(text)[1] <= 4 * len(text)


HOSTILE = (
    "<", "<>", "<a ", "</", "<!--", "<!doctype ", "<?xml ", "<![if ", "<a x='", "<a x='<a x=\"", "<a b='<a b=' c=",
    "<p", "<a x='1'", "<a x ", "<a checked ", "<a x=1 x = ", "</p ", "<!-- <i> ", "<a\t", "<a x='-->", "<td><!--",
)  # fmt: skip


class Page(str):
    """A text that counts the characters that its searches read."""

    searched = 0

    def find(self, part: str, start: int) -> int:  # type: ignore[override]
        found = super().find(part, start)
        self.searched += (found if found >= 0 else len(self)) - start
        return found


def test_hostile_pages_are_read_in_linear_time():
    for text in HOSTILE:
        page = Page(text * 300)
        assert strip_tags(page) == rewriting.strip_tags(str(page)), text
        assert rewriting.find_tags(str(page))[1] <= 4 * len(page), text
        assert page.searched <= len(page), text
    without_possessive = re.sub(r"[*+]\+", "", tags.TAG)
    assert not {*"*+"} & {*without_possessive}  # nothing is read again after a failure


def test_longer_ones_are_text(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tags, "LONGEST", 20)
    texts = ["<a href='1234567890'>", "<a href='123456789'>", "<!--90123456789012-->", "<!--9012345678901-->"]
    for strip in (strip_tags, rewriting.strip_tags):
        assert [*map(strip, texts)] == [texts[0], "", texts[2], ""]
