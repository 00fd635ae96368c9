"""Every error that Kubothek raises on purpose: ``except kubothek.errors.Conflict``.

All are a ``LakeError``. An ``InputError`` does not go away by itself: the data or the call is to be changed. A
``StoreError`` is about the store; ``error.transient`` tells whether trying again may help, ``error.reason`` is the
reason of conditions in the cluster.
"""

from __future__ import annotations

from kubothek.lake import errors as _errors
from kubothek.lake.errors import *  # noqa: F403
from kubothek.lake.errors import LakeError

__all__ = sorted(name for name, each in vars(_errors).items() if isinstance(each, type) and issubclass(each, LakeError))
