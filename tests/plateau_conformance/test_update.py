"""plateau.io.testing.update over Kubothek."""

from plateau.io.testing.update import *  # noqa: F403
