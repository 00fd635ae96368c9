"""Files from FTP servers (FE-04)."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from kubothek.errors import SourceNotFound, SourceRefused, SourceUnavailable
from kubothek.ingest import UrlPolicy
from kubothek.odf.spec.sources import FetchStepUrl
from tests.odf.sources.conftest import NOW_MS, all_rows, context, polled


class Session(socketserver.StreamRequestHandler):
    """As much of RFC 959 as a client needs to fetch /in/x.csv."""

    def handle(self) -> None:
        self.say("220 here")
        data = socket.create_server(("127.0.0.1", 0))
        data.settimeout(60)
        while line := self.rfile.readline().decode().strip():
            verb, _, rest = line.partition(" ")
            if verb == "EPSV":
                self.say(f"229 (|||{data.getsockname()[1]}|)")
            elif verb == "PASV":
                port = data.getsockname()[1]
                self.say(f"227 (10,0,0,1,{port >> 8},{port & 255})")  # not its own address
            elif verb == "RETR" and rest == "in/x y.csv":
                self.say("150 coming")
                with data.accept()[0] as link:
                    link.sendall(b"1,x\n")
                self.say("226 done")
            elif verb == "RETR" and rest == "broken":
                self.say("150 coming")
                data.accept()[0].close()
                break
            else:
                self.say({"USER": "230 in", "TYPE": "200 yes", "QUIT": "221 bye"}.get(verb, "550 no such file"))
        data.close()

    def say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@pytest.fixture
def port() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.requirement("FE-04")
def test_ftp_fetch_reads_file(port: int) -> None:
    found = polled(FetchStepUrl(url=f"ftp://127.0.0.1:{port}/in/x%20y.csv"))
    assert (all_rows(found), found.state, found.event_time) == ([{"a": 1, "b": "x"}], None, NOW_MS)
    with pytest.raises(SourceNotFound, match=r"the server answers 550 no such file"):
        polled(FetchStepUrl(url=f"ftp://127.0.0.1:{port}/in/y.csv"))
    with pytest.raises(SourceUnavailable, match=r"cannot be reached"):
        polled(FetchStepUrl(url=f"ftp://127.0.0.1:{port}/broken"))
    with pytest.raises(SourceRefused, match=r"names no file"):
        polled(FetchStepUrl(url=f"ftp://127.0.0.1:{port}/"))
    with pytest.raises(SourceUnavailable, match=r"cannot be reached"):
        polled(FetchStepUrl(url=f"ftps://127.0.0.1:{port}/in/x%20y.csv"))  # it speaks no TLS


@pytest.mark.requirement("FE-04")
def test_ftp_fetch_outside_policy_is_refused(port: int) -> None:
    url = f"ftp://127.0.0.1:{port}/in/x%20y.csv"
    with pytest.raises(SourceRefused, match=r"larger than 3 bytes"):
        polled(FetchStepUrl(url=url), ctx=context(policy=UrlPolicy(("*",), allow_local=True, max_bytes=3)))
    with pytest.raises(SourceRefused, match=r"not a public address"):
        polled(FetchStepUrl(url="ftp://127.0.0.1/x"), ctx=context(policy=UrlPolicy(("*",))))
    with pytest.raises(SourceRefused, match=r"host '127.0.0.1' is not on"):
        polled(FetchStepUrl(url=url), ctx=context(policy=UrlPolicy()))
    with pytest.raises(SourceRefused, match=r"control characters"):
        polled(FetchStepUrl(url="ftp://127.0.0.1/x\r\nDELE y"))
    with pytest.raises(SourceRefused, match=r"names no file"):
        polled(FetchStepUrl(url=f"ftp://127.0.0.1:{port}/x%0D%0ADELE%20y"))
