"""The live page as text: it names nothing outside itself, and its policy lets only its own style and script run."""

import base64
import hashlib
import re
from html.parser import HTMLParser

from delta_tta.serve.page import page, policy


class Reader(HTMLParser):
    """Collects tags with their attributes, and the text of styles and scripts as a browser reads it."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.inline, self._in = [], [], None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._in = tag if tag in ("style", "script") else None
        if self._in:
            self.inline.append((tag, ""))

    def handle_endtag(self, tag):
        self._in = None

    def handle_data(self, data):
        if self._in:
            tag, before = self.inline[-1]
            self.inline[-1] = (tag, before + data)


def directives():
    return {name: values for name, *values in (part.split() for part in policy().split(";"))}


def test_the_policy_allows_this_style_and_this_script_alone():
    inline = Reader(page()).inline
    assert [tag for tag, _ in inline] == ["style", "script"]
    for tag, text in inline:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert directives()[f"{tag}-src"] == [f"'sha256-{digest}'"]


def test_the_policy_forbids_whatever_else_the_page_does_not_need():
    known = directives()
    for name in ("default-src", "frame-ancestors", "base-uri", "form-action"):
        assert known[name] == ["'none'"]
    assert known["connect-src"] == ["'self'"]
    assert known["require-trusted-types-for"] == ["'script'"]
    assert "unsafe" not in policy()
    policy().encode("ascii")
    assert "\n" not in policy(), "it goes into a header"


def test_no_attribute_needs_what_the_policy_refuses():
    for tag, attributes in Reader(page()).tags:
        assert not [name for name in attributes if name == "style" or name.startswith("on")], tag
        for name in ("src", "href", "action"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)


def test_each_element_that_the_script_or_a_label_names_exists_once():
    reader = Reader(page())
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = set(re.findall(r"\bat\('([\w-]+)'\)", dict(reader.inline)["script"]))
    named |= {attributes["aria-labelledby"] for _, attributes in reader.tags if "aria-labelledby" in attributes}
    assert len(named) > 20
    assert named <= set(ids)


def test_every_tag_is_closed_and_the_script_ends_where_it_should():
    text = page()
    assert text.count("<script") == text.count("</script>") == 1
    for tag in ("section", "div", "p", "figure", "ol", "dialog", "table", "button", "form", "label"):
        assert len(re.findall(rf"<{tag}[ >]", text)) == text.count(f"</{tag}>"), tag
    assert text.startswith("<!doctype html>")
