"""What is asked of every page: that it is whole and fetches nothing, and what a real browser makes of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from base64 import b64decode
from html import escape, unescape
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
VOID = {"meta", "br", "link", "img", "input", "hr"}
DRAWING = "data:image/svg+xml;base64,"


class Checker(HTMLParser):
    """Reads a page: text, elements with their attributes, and whether every element is closed where it should be."""

    def __init__(self, source):
        super().__init__()
        self.open, self.elements, self.texts = [], [], []
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self):
        """All text, runs of blanks made one."""
        return " ".join(" ".join(self.texts).split())

    @property
    def titles(self):
        """The titles of the charts."""
        return [attributes["alt"].partition(".")[0] for tag, attributes in self.elements if tag == "img"]


def check(source):
    """Well formed, and nothing in it that is fetched or run; its elements are returned as read."""
    read = Checker(source)
    for tag, attributes in read.elements:
        assert tag not in ("script", "link", "iframe", "object", "base")
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name not in ("href", "action", "data", "srcset")
            if name == "src":
                assert value.startswith(DRAWING)
                check_drawing(b64decode(value.removeprefix(DRAWING)))
    assert not re.search(r"url\(|@import|@font-face", source.partition("</style>")[0])
    return read


def check_drawing(svg):
    """Return the text of a chart; it is well-formed, runs nothing, and has no coordinate that is not a number."""
    root = ElementTree.fromstring(svg)
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    values = [value for element in root.iter() for value in element.attrib.values()]
    assert not [value for value in values if re.search(r"\bnan\b", value)]
    return " ".join(root.itertext())


def drawn(chart):
    """The axes of a chart."""
    from matplotlib.figure import Figure

    axis = Figure().add_subplot()
    chart.draw(axis)
    return axis


def lines_of(chart):
    """The lines of a chart as matplotlib draws them: points (n, 2) by label."""
    return {line.get_label(): line.get_xydata() for line in drawn(chart).lines}


MEASURE = """
<script>
addEventListener("load", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
  const wide = document.documentElement.scrollWidth, found = [];
  for (const drawing of document.querySelectorAll("svg")) {
    const frame = drawing.getBoundingClientRect();
    const boxes = [...drawing.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
    boxes.forEach(([text, a], k) => {
      if (a.left < frame.left - 1 || a.right > frame.right + 6 || a.bottom > frame.bottom + 1 || a.top < frame.top - 1)
        found.push("cut off: " + text);
      for (const [other, b] of boxes.slice(k + 1))
        if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4)
          found.push("on one another: " + text + ", " + other);
    });
  }
  for (const part of document.querySelectorAll(".value, h1, dd, p"))
    if (part.scrollWidth > part.clientWidth + 1) found.push("too wide: " + part.textContent);
  for (const image of document.images) if (!image.naturalWidth) found.push("not drawn: " + image.alt);
  const paper = getComputedStyle(document.body).backgroundColor;
  const measured = {wide, seen: innerWidth, found, paper, title: document.title, text: document.body.innerText};
  parent.document.body.dataset.measured = JSON.stringify(measured);
});
</script>
"""
"""Runs in the browser, after the page: what does not fit, what lies on something else."""


def browse(folder, source, *options, width, height=2000):
    """What a browser makes of the page: measures, and its picture (height, width, 3) in 0 … 1.

    It is measured inside a frame, for a window may not be as narrow as a phone.
    """
    from matplotlib.image import imread

    (folder / "page.html").write_text(source, encoding="utf-8")
    inside = escape(source.replace("</body>", MEASURE + "</body>"))
    frame = (
        f'<!DOCTYPE html><meta charset="utf-8"><iframe width="{width}" height="{height}" srcdoc="{inside}"></iframe>'
    )
    (folder / "measured.html").write_text(frame, encoding="utf-8")
    quiet = "--disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync"
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", *quiet.split(), "--hide-scrollbars", *options]
    command += [f"--user-data-dir={folder / 'profile'}", f"--window-size={width},{height}"]

    def run(*last):
        return subprocess.run([*command, *map(str, last)], capture_output=True, text=True, timeout=120, check=True)

    tree = run("--dump-dom", (folder / "measured.html").as_uri()).stdout
    run(f"--screenshot={folder / 'page.png'}", (folder / "page.html").as_uri())
    measured = json.loads(unescape(re.search(r'data-measured="(.*?)"', tree)[1]))
    return measured, imread(folder / "page.png")[..., :3]


def holds(picture, colour):
    """Whether there are pixels of this colour, as #rrggbb."""
    rgb = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return int((np.abs(picture - rgb).max(axis=2) < 0.02).sum()) > 50


browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
