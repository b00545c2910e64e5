"""The troubleshooting page covers all advice, warnings and notes in the source code."""

import ast
import re
import sys
from pathlib import Path

import pytest

from partirvm import errors
from partirvm.core import Termination
from partirvm.jobs import Status

DOCS = Path(__file__).parents[2] / "docs"

sys.path.insert(0, str(DOCS / "_extensions"))

import messages  # noqa: E402

INDIRECT = {("fit/remarks.py", "remark"), ("fit/remarks.py", "reason.advice")}
"""Warnings whose text is built elsewhere."""


def plain(text):
    """Return text without Markdown marks and line breaks."""
    return re.sub(r"\s+", " ", re.sub(r"^> ?", "", text, flags=re.MULTILINE)).replace("\\", "")


PAGE = plain((DOCS / "troubleshooting.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("member", [*Termination, *Status], ids=str)
def test_all_advice_is_explained(member):
    assert member.advice in PAGE


def test_every_warning_and_note_of_a_plan_is_explained():
    warnings = list(messages.warned())
    without = {
        (module, ast.unparse(node))
        for module, _, node in warnings
        if messages.template(node) is None
    }
    assert without == INDIRECT
    texts = [text for _, _, node in warnings if (text := messages.template(node)) is not None]
    assert len(texts) == 18
    assert [text for text in texts if text not in PAGE] == []
    texts = list(messages.noted())
    assert len(texts) == 10
    assert [text for text in texts if text not in PAGE] == []


def test_every_warning_class_has_a_section():
    kinds = [kind.__name__ for kind in errors.PartirvmWarning.__subclasses__()]
    assert len(kinds) == 6
    text = (DOCS / "troubleshooting.md").read_text("utf-8")
    assert [name for name in kinds if f"### {name}" not in text] == []


def test_every_error_class_is_listed():
    """There is one directive for each class with a message."""
    listed = re.findall(
        r"```\{error-messages\} (\w+)", (DOCS / "troubleshooting.md").read_text("utf-8")
    )
    assert sorted(listed) == sorted(messages.error_messages())
