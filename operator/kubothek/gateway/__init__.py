"""The gateway: datasets of one store for other parties, over HTTP and WebSockets (docs/exchange.md)."""

from __future__ import annotations
