"""Prepare a fit from a request and a data source: check both, resolve every option "auto", and
plan."""
