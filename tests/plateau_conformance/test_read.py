"""plateau.io.testing.read over Kubothek: a frame for each file."""

import pytest
from plateau.io.testing.read import *  # noqa: F403

pytestmark = pytest.mark.slow
