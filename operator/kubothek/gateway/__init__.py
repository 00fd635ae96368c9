"""The gateway: serves the datasets of a store to other parties, over HTTP and WebSockets (docs/exchange.md)."""

from __future__ import annotations
