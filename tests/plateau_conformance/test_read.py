"""plateau.io.testing.read over Kubothek: a frame for each file."""

from plateau.io.testing.read import *  # noqa: F403
