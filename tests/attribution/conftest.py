"""A small encoder whose every stage is sound."""

from __future__ import annotations

import pytest

from tests.support.exports import known_exports
from tests.support.faults import Sound, make_sound


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    with known_exports():
        return make_sound("bert", tmp_path_factory.mktemp("sound"))
