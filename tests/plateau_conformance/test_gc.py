"""plateau.io.testing.gc over Kubothek."""

from plateau.io.testing.gc import *  # noqa: F403
