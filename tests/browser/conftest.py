"""The page as a process, for the tests that need nothing special of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.driving import Served


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A running page with the recorded pairs, one for each file of tests."""
    served = Served(["app.py", "--port", "PORT"])
    try:
        yield served.start().url
    finally:
        served.kill()
