"""From a request and a source to a fit that is ready to run: checks, every "auto" resolved, the plan."""
