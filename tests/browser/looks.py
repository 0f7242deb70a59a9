"""What can be measured of how the widget looks: contrast of its texts, and texts that are cut."""

from __future__ import annotations

from typing import NamedTuple

from playwright.sync_api import Locator

# Colours come in any notation, color-mix() included: a canvas turns each into four numbers. What
# shines through is blended with whatever stands behind, up to the page.
_CONTRASTS = """(root) => {
  const pen = Object.assign(document.createElement("canvas"), {width: 1, height: 1})
    .getContext("2d", {willReadFrequently: true});
  const known = new Map();
  const read = (colour) => {
    if (!known.has(colour)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      known.set(colour, [r, g, b, a / 255]);
    }
    return known.get(colour);
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((v, i) => v * a + under[i] * (1 - a));
  const ground = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) {
      layers.push(getComputedStyle(at).backgroundColor);
    }
    return layers.reverse().reduce((under, colour) => over(read(colour), under), [255, 255, 255]);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255)
      .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node.textContent.trim();
    const parent = node.parentElement;
    const box = parent.getBoundingClientRect();
    if (!text || !parent.checkVisibility() || box.width < 2 || box.height < 2) continue;
    const under = ground(parent);
    const pair = [light(over(read(getComputedStyle(parent).color), under)), light(under)];
    const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    found.push([`${text.slice(0, 40)} (${parent.className})`, ratio]);
  }
  return found;
}"""
_CUT = """(root) => {
  const frame = root.getBoundingClientRect();
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.textContent.trim() || !node.parentElement.checkVisibility()) continue;
    if (node.parentElement.closest('[role="status"]')) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    let [left, right] = [frame.left, frame.right];
    for (let at = node.parentElement; at !== root; at = at.parentElement) {
      if (getComputedStyle(at).overflowX === "visible") continue;
      const clip = at.getBoundingClientRect();
      [left, right] = [Math.max(left, clip.left), Math.min(right, clip.right)];
    }
    if (box.left < left - 1 || box.right > right + 1) found.push(node.textContent.trim());
  }
  return found;
}"""


class Contrast(NamedTuple):
    """How well a text stands out from its ground, by WCAG 2."""

    text: str
    ratio: float


def contrasts(root: Locator) -> list[Contrast]:
    """The contrast of every visible text below an element."""
    return [Contrast(text, ratio) for text, ratio in root.evaluate(_CONTRASTS)]


def cut_texts(root: Locator) -> list[str]:
    """Texts that reach beyond what is shown of them."""
    return [str(text) for text in root.evaluate(_CUT)]
