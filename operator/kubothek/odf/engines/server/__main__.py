"""``python -m kubothek.odf.engines.server``: our engine for other coordinators, in a container of its own."""

from __future__ import annotations

import argparse
import logging
import signal
import threading
from collections.abc import Sequence

from kubothek.odf.engines.server.service import EngineServer
from kubothek.odf.engines.server.working import LIMITS, Limits
from kubothek.odf.spec.engine_wire import PORT, VOLUME
from kubothek.odf.transform import ENGINE_VERSION

_GRACE_SECONDS = 20.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m kubothek.odf.engines.server", description=__doc__)
    parser.add_argument("--listen", default=f"0.0.0.0:{PORT}", metavar="HOST:PORT", help="default: %(default)s")
    parser.add_argument(
        "--volume", default=VOLUME, metavar="DIR", help="what it shares with coordinators; default: %(default)s"
    )
    parser.add_argument(
        "--memory", default=LIMITS.memory, help="of one request, two of which run at a time; default: %(default)s"
    )
    parser.add_argument(
        "--seconds", default=LIMITS.seconds, type=float, help="that one request may take; default: %(default)g"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    with EngineServer(options.listen, options.volume, Limits(options.memory, options.seconds)) as server:
        logging.getLogger(__name__).info("%s listens on port %s", ENGINE_VERSION, server.port)
        over.wait()
        server.stop(_GRACE_SECONDS)


if __name__ == "__main__":
    main()
