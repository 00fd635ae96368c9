"""plateau.io.testing.index over Kubothek."""

from plateau.io.testing.index import *  # noqa: F403
