"""Checks for every page: it is complete, well formed, and fetches nothing."""

import re
from base64 import b64decode
from html.parser import HTMLParser
from xml.etree import ElementTree

VOID = {"meta", "br", "link", "img", "input", "hr"}
DRAWING = "data:image/svg+xml;base64,"


class Checker(HTMLParser):
    """Reads a page: text, elements with attributes, and whether each element is closed."""

    def __init__(self, source):
        super().__init__()
        self.open = []
        self.elements = []
        self.texts = []
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
        """Return all text, with whitespace collapsed to single spaces."""
        return " ".join(" ".join(self.texts).split())

    @property
    def titles(self):
        """Return the titles of the charts."""
        return [
            attributes["alt"].partition(".")[0] for tag, attributes in self.elements if tag == "img"
        ]


def check(source):
    """Return the elements of a page; assert that it is well formed, and fetches and runs
    nothing."""
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
    """Return the text of a chart; assert that it is well formed, runs nothing, and has no NaN."""
    root = ElementTree.fromstring(svg)
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    values = [value for element in root.iter() for value in element.attrib.values()]
    assert not [value for value in values if re.search(r"\bnan\b", value)]
    return " ".join(root.itertext())


def drawn(chart):
    """Return the axes of a chart."""
    from matplotlib.figure import Figure

    axis = Figure().add_subplot()
    chart.draw(axis)
    return axis


def lines_of(chart):
    """Return the lines of a chart as matplotlib draws them: points (n, 2) by label."""
    return {line.get_label(): line.get_xydata() for line in drawn(chart).lines}
