"""Prepare a fit from a request and a data source: check both, resolve every option set to "auto",
and make a plan."""
