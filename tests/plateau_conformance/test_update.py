"""plateau.io.testing.update over Kubothek."""

import pytest
from plateau.io.testing.update import *  # noqa: F403

pytestmark = pytest.mark.slow
