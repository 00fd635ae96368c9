"""plateau.io.testing.index over Kubothek."""

import pytest
from plateau.io.testing.index import *  # noqa: F403

pytestmark = pytest.mark.slow
