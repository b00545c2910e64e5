"""Messages are short and cannot move the cursor, whatever the data contain."""

import pickle

import pytest

from partirvm import errors
from partirvm.quoting import listed, message_text, named, printable, quoted, without_credentials
from partirvm.storage import address

HOSTILE = "\x1b]0;title\x07\x1b[31mred\r\u202egone\u2028\x9b2J"
"""Sets a terminal's title and colour, moves back in the line, and reverses the text direction."""

CLASSES = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, errors.PartirvmError | errors.PartirvmWarning)
]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_and_warning_is_one_printable_line_with_its_advice(kind):
    error = kind(f"t.csv: {HOSTILE}\nforged: line")
    assert str(error).isprintable()
    assert str(error).startswith(
        "t.csv: \\x1b]0;title\\x07\\x1b[31mred\\r\\u202egone\\u2028\\x9b2J\\nforged"
    )
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    # a huge value does not displace the advice
    said = str(kind(f"column 'b' holds {'x' * 200_000}: name it as categorical"))
    assert len(said) < 2_100
    assert said.startswith("column 'b' holds xxx")
    assert said.endswith("x: name it as categorical")


@pytest.mark.parametrize(
    "shown",
    [quoted, named, lambda value: listed([value]), lambda value: listed([value], show=quoted)],
)
@pytest.mark.parametrize(
    "value", [HOSTILE, "x" * 200_000, b"\x1b" * 9, ["\x1b" * 100_000], "\ud800"]
)
def test_values_in_messages_are_short_and_printable(shown, value):
    assert len(shown(value)) < 400
    assert shown(value).isprintable()


def test_plain_text_is_unchanged():
    text = "Zürich – 10 %, 漢字, β = σ⁻², 'red'"
    assert printable(text) == message_text(text) == named(text) == text


PASSWORDS = (
    "secret",
    "se/cret",
    "12/secret",
    "80/se/cret",
    "8020/secret?x",
    "1",
    "/12/secret",
    "12345/a=+b",
    "se?cret=1",
)
"""Passwords as people paste them, some of which begin like a port."""


@pytest.mark.usefixtures("separate_addresses")
@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("protocol", ["s3", "gs", "az", "abfs", "ssh", "sftp", "ftp", "hdfs"])
def test_a_password_outside_http_is_removed_although_it_resembles_a_port(protocol, password):
    """The password is kept in the process for opening the store."""
    place = f"{protocol}://key:{password}@bucket/x"
    assert without_credentials(f"cannot read '{place}': {place}") == (
        f"cannot read '{protocol}://bucket/x': {protocol}://bucket/x"
    )
    assert address.address(place) == f"{protocol}://bucket/x"
    assert list(address._logins.values()) == [("key", password)]


@pytest.mark.parametrize(
    "password", ["se/cret", "se?cret=1", "12se/cret", "123456/secret", "se@cret"]
)
def test_a_password_in_http_is_removed_unless_the_address_is_valid_with_a_port(password):
    assert without_credentials(f"https://key:{password}@host/x") == "https://host/x"


@pytest.mark.parametrize(
    "text",
    [
        "http://host:80/a@b",
        "https://host:8443/a@b",
        "HTTP://host:80/a@b",
        "http://[::1]:80/a@b",
        "ssh://[fe80::1]:22/a@b",
        "abfs://container@account/x",
        "s3://bucket/a:12/b@c",
        "file:///data/a:12/b@c",
        "tcp://127.0.0.1:8786/status, me@host",
        "s3://bucket/x: cannot be read; ask me@host",
    ],
)
def test_an_address_without_a_password_is_unchanged(text):
    assert without_credentials(text) == text
