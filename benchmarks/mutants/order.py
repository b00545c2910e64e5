"""A plugin of pytest that runs tests in the order of the files on the command line, whatever the
order of the suite is."""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests by the place of their file on the command line."""
    places = {argument: place for place, argument in enumerate(config.args)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))
