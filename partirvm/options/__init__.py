"""What a user asks of a fit: one table of options, the request that it describes, and options as values.

``table``
    The table: name, type, default, check, help and group of every option, once; ``Request`` is a row of values.
``values``
    Strategies, solvers, noise and priors as values that an estimator is given, and the base of all values.
``names``, ``constraints``
    The words that options take; what a row of the table is, and its check.
"""

from __future__ import annotations

from partirvm.options.table import TABLE, Request, check, idle

__all__ = ["TABLE", "Request", "check", "idle"]
