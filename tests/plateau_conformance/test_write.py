"""plateau.io.testing.write over Kubothek."""

import pytest
from plateau.io.testing.write import *  # noqa: F403

pytestmark = pytest.mark.slow
