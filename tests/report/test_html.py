"""The page and the block: self-contained, escaped, and with the finding in words."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest

from tests.view.attributed import attributed
from tests.view.synthetic import make_source
from workbench.report.html import block, page
from workbench.view.model import ViewModel

HOSTILE = "<script>alert(1)</script>"
VOID = {"meta", "br", "img", "path", "rect"}
PICTURE = "data:image/svg+xml,"


class Tags(HTMLParser):
    """Every start tag with its attributes; complains about a tag that is closed out of order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID or tag in ("path", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def model_of(**events: Any) -> ViewModel:
    """A view-model over invented arrays."""
    return ViewModel(make_source(**{"flips": ((1, 5),), "noise": 1e-5, **events}))


def hostile() -> ViewModel:
    """Everything that comes from outside tries to be markup."""
    source = make_source(texts=[HOSTILE] * 60, flips=((1, 5),))
    source.summary["a"]["model"] |= {"id": f"{HOSTILE}$style"}
    source.summary["a"] |= {"engine": HOSTILE}
    source.summary["reason"] = HOSTILE
    return ViewModel(source)


@pytest.mark.parametrize("write", [page, block])
def test_nothing_from_outside_becomes_markup(write: Any) -> None:
    text = write(hostile())
    assert "<script" not in unquote(text)
    assert "&lt;script&gt;" in text
    tags = Tags(text)
    assert not tags.open
    assert "script" not in {tag for tag, _ in tags.found}


@pytest.mark.parametrize("write", [page, block])
def test_nothing_is_fetched(write: Any) -> None:
    text = write(model_of())
    for _, attributes in Tags(text).found:
        assert not attributes.keys() & {"href", "onload", "onclick"}
        assert str(attributes.get("src", PICTURE)).startswith(PICTURE)
    links = set(re.findall(r"https?://[^\s\"'<]+", unquote(text)))
    assert links <= {"http://www.w3.org/2000/svg"}


def test_the_page_says_what_was_found_and_how_to_go_on() -> None:
    text = page(model_of())
    for words in (
        "A (rollout)",
        "B (trainer)",
        "first flip: L1 t5",
        "A minus B",
        "explained flip",
        "same experts, same order",
        "kldive tui run/comparison --at &#x27;L1 t5 topk_ids&#x27;",
    ):
        assert words in text, words


def test_modules_are_on_the_page_once_they_are_known() -> None:
    source = attributed(make_source(noise=1e-5), {(2, 9, "attention"): 0.2}, who="A")
    text = page(ViewModel(source))
    assert "modules on A&#x27;s input" in text
    assert "A (rollout) is wrong" in text


def test_the_page_of_a_large_comparison_is_small_enough_to_attach() -> None:
    model = model_of(num_layers=96, num_rows=8192, noise=0.01)
    model.act("lens.combined")
    text = page(model, (0, 96, 0, 8192))
    assert len(text.encode()) <= 2_000_000


@pytest.mark.parametrize("write", [page, block])
def test_a_comparison_without_rows_is_said_to_be_empty(write: Any) -> None:
    text = write(model_of(num_rows=0, flips=()))
    assert "A (rollout)" in text
    assert not Tags(text).open


def test_the_block_has_its_styles_in_place() -> None:
    text = block(model_of())
    assert "<style" not in text
    assert 'class="chip' not in text
    assert "<svg" not in text
    (picture,) = [attributes for tag, attributes in Tags(text).found if tag == "img"]
    assert str(picture["alt"]).startswith("diverged")
    svg = ET.fromstring(unquote(str(picture["src"]).removeprefix(PICTURE)))
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
