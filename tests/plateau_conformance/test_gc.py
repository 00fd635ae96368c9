"""plateau.io.testing.gc over Kubothek."""

import pytest
from plateau.io.testing.gc import *  # noqa: F403

pytestmark = pytest.mark.slow
