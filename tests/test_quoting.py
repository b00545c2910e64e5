"""Messages are short and cannot move the cursor, whatever the data hold."""

import pickle

import pytest

from partirvm import errors
from partirvm.quoting import listed, message_text, named, printable, quoted

HOSTILE = "\x1b]0;title\x07\x1b[31mred\r\u202egone\u2028\x9b2J"
"""Sets a terminal's title and colour, goes back over the line, turns its direction."""

CLASSES = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, errors.PartirvmError | errors.PartirvmWarning)
]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_and_warning_is_one_printable_line_with_its_advice(kind):
    error = kind(f"t.csv: {HOSTILE}\nforged: line")
    assert str(error).isprintable()
    assert str(error).startswith("t.csv: \\x1b]0;title\\x07\\x1b[31mred\\r\\u202egone\\u2028\\x9b2J\\nforged")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    # beside a huge value the advice stays
    said = str(kind(f"column 'b' holds {'x' * 200_000}: name it as categorical"))
    assert len(said) < 2_100
    assert said.startswith("column 'b' holds xxx")
    assert said.endswith("x: name it as categorical")


@pytest.mark.parametrize(
    "shown", [quoted, named, lambda value: listed([value]), lambda value: listed([value], show=quoted)]
)
@pytest.mark.parametrize("value", [HOSTILE, "x" * 200_000, b"\x1b" * 9, ["\x1b" * 100_000], "\ud800"])
def test_values_in_messages(shown, value):
    assert len(shown(value)) < 400
    assert shown(value).isprintable()


def test_plain_text_is_left_alone():
    text = "Zürich – 10 %, 漢字, β = σ⁻², 'red'"
    assert printable(text) == message_text(text) == named(text) == text
