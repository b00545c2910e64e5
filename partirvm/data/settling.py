"""Read a table until its proposals are accepted and the notation of its texts is known."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

from partirvm.data.encode import Encoder
from partirvm.data.problems import Finding, remedied
from partirvm.data.written import Reading

CORRECTIONS = 2
"""Maximum number of times that a table is read again because of how its texts are written: the
second time with the evidence of all texts."""

REREADS = 3
"""Maximum number of times that a table is read again with the proposed options."""


class ReadTable(Protocol):
    """The result of reading a table."""

    @property
    def encoder(self) -> Encoder:
        """The encoder of the records."""

    def findings(self) -> list[Finding]:
        """Return the problems of the rows and columns, and proposals for them."""

    def discard(self) -> None:
        """Remove the records, because the table is read again."""


Result = TypeVar("Result", bound=ReadTable)

Read: TypeAlias = Callable[[Mapping[str, Any], list[Finding], Mapping[str, Reading]], Result]
"""A function that reads a table with options by name, the proposals accepted before, and how text
columns are read, as far as all their rows have been read before."""


def read_until_settled(read: Read[Result], options: Mapping[str, Any], rereads: int) -> Result:
    """Return the last reading of a table.

    The table is read again with the proposed options, or if all rows show that its texts are
    written in another way than the first rows.

    Args:
        read: function that reads the table
        options: options of the columns by name
        rereads: maximum number of times that proposals are accepted
    """
    accepted = list[Finding]()
    readings = dict[str, Reading]()
    n_corrections = 0
    while True:
        result = read(options, accepted, readings)
        corrected = result.encoder.readings() if n_corrections < CORRECTIONS else {}
        findings = result.findings()
        proposals = [finding for finding in findings if finding.remedy and not finding.asks]
        if not corrected and (not proposals or not rereads):
            return result
        result.discard()
        del result  # free the memory of its labels
        if corrected:
            readings = corrected
            n_corrections += 1
            continue
        rereads -= 1
        options = remedied(options, proposals)
        accepted = accepted + proposals
