"""The ledger: Open Data Fabric chains. See docs/odf.md.

verdict = verify(store, Layout("flights/"))     # a dataset in the layout of the simple transfer protocol
verdict.first                                   # the first thing that is wrong with it, or None
"""

from __future__ import annotations

from kubothek.lake.ledger.chain import BrokenChain, read_chain, read_head
from kubothek.lake.ledger.checking.verification import Level, Scope, Verdict, verify
from kubothek.lake.ledger.formats.blocks import Block, Dialect
from kubothek.lake.ledger.formats.identity import DatasetId, OwnerKey
from kubothek.lake.ledger.formats.layout import Layout
from kubothek.lake.ledger.formats.multihash import Multihash
from kubothek.lake.ledger.formats.timestamps import Timestamp
from kubothek.lake.ledger.hashing.digest import LogicalHash, logical_hash
from kubothek.lake.ledger.validity.problems import Problem, Severity
from kubothek.lake.ledger.validity.rules import append, problems
from kubothek.lake.ledger.validity.state import ChainState, Vocabulary

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
