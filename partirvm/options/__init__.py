"""The options of a fit: a table of all options, the request that it describes, and options as
values."""

from partirvm.options.table import TABLE, Request, check

__all__ = ["TABLE", "Request", "check"]
