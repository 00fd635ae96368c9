"""The interface between control plane and data plane: a job spec in, a job result out, both plain JSON.

:mod:`kubothek.controller` writes job specs and reads results; :mod:`kubothek.jobs` does the reverse. Neither imports
the other.
"""

# The names are those that these modules define; type checkers refuse the names that they only import.
from kubothek.api.jobs.cubes import *  # noqa: F403
from kubothek.api.jobs.parts import *  # noqa: F403
from kubothek.api.jobs.results import *  # noqa: F403
from kubothek.api.jobs.specs import *  # noqa: F403
