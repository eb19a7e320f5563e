"""Names that are imported when they are first asked for are where the package says."""

from importlib import import_module

import pytest


@pytest.mark.parametrize("module", ["gossiplog", "gossiplog.aio", "gossiplog.blocking"])
def test_every_public_name_can_be_had(module):
    names = import_module(module)
    assert [name for name in names.__all__ if not hasattr(names, name)] == []
