"""The ledger: Open Data Fabric chains. See docs/odf.md.

verdict = verify(store, Layout("flights/"))     # a dataset in the layout of the simple transfer protocol
verdict.first                                   # the first problem, or None
"""

from __future__ import annotations

from kubothek.odf.chain import BrokenChain, read_chain, read_head
from kubothek.odf.problems import Problem, Severity
from kubothek.odf.spec.blocks import Block, Dialect
from kubothek.odf.spec.digest import LogicalHash, logical_hash
from kubothek.odf.spec.identity import DatasetId, OwnerKey
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.validation.rules import append, problems
from kubothek.odf.validation.state import ChainState, Vocabulary
from kubothek.odf.validation.verification import Level, Scope, Verdict, verify

__all__ = [
    "Block",
    "BrokenChain",
    "ChainState",
    "DatasetId",
    "Dialect",
    "Layout",
    "Level",
    "LogicalHash",
    "Multihash",
    "OwnerKey",
    "Problem",
    "Scope",
    "Severity",
    "Timestamp",
    "Verdict",
    "Vocabulary",
    "append",
    "logical_hash",
    "problems",
    "read_chain",
    "read_head",
    "verify",
]
