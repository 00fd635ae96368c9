"""An executable model of the commit protocol, explored exhaustively. See docs/commit-protocol.md."""
