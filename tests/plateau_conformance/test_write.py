"""plateau.io.testing.write over Kubothek."""

from plateau.io.testing.write import *  # noqa: F403
