"""Requests of those who mean no good, of seven kinds, each drawn from a number.

Each kind checks its own answers: what is well formed but not allowed is refused in just that way, what is broken gets
no more than a refusal, who is slow is cut off, and nobody gets bytes that are not theirs.
"""

from __future__ import annotations

import gzip
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from kubothek.odf import Layout, Multihash, read_chain
from kubothek.odf.chain import Stored
from kubothek.odf.sync.smart.batch import batch_of
from kubothek.odf.sync.smart.messages import Dialect
from kubothek.storage import Store
from kubothek.table.log.model import keys
from tests.gateway.running import READER, WRITER
from tests.gateway.wire import Told, frame, heard, left, request, stalled, told, upgrade
from tests.odf.dataset.planes import UUID

CANARY: Final = b"what nobody may see " * 50
LARGEST: Final = 1 << 20
"""Bytes of an object, of a body and of a message that the gateway under attack takes."""
_BULKY: Final = 24 << 20
_BOMB: Final = gzip.compress(bytes(64 << 20))
_SPLICES: Final = ("", "/", "..", "%2e%2e%2f", "%00", "\r\n", " ", "f", "\\", "\xff", "{", "A" * 9000)
_HEADERS: Final = (
    "Range: bytes=0-1",
    "Range: bytes=1-0",
    f"Range: bytes=-{10**30}",
    "Range: bytes=" + "0-1," * 500,
    "Content-Length: 5",
    "Content-Length: -1",
    "Content-Length: 99999999999999999999",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
    "If-None-Match: *",
    "If-Range: \xff",
    "Expect: 100-continue",
    "Host: y",
    ": empty",
    "Content-Encoding: gzip",
    "Cookie: " + "a=b; " * 900,
)


@dataclass(frozen=True)
class Target:
    """A store under attack.

    ``public``   an object that anybody may have: its path and its bytes
    ``private``  the path of one that holds the canary, in a dataset that only the writer may see
    ``bulky``    the path of a public one that no socket's buffers hold
    ``chain``    a sound one
    """

    public: tuple[str, bytes]
    private: str
    bulky: str
    chain: Sequence[Stored]

    @classmethod
    def of(cls, store: Store) -> Target:
        """Of a store with a public ledger ``planes`` and a private one ``copy``; puts objects into both."""
        layout = Layout(keys.chain(UUID))
        named = next(iter(store.list(f"{layout.root}data/"))).key.rpartition("/")[2]
        chain = read_chain(store, layout)
        canary, bulky = Multihash.sha3(CANARY), os.urandom(_BULKY)
        store.put("secret.txt", CANARY)
        store.put(f"{layout.root}elsewhere", CANARY)
        store.put(Layout(keys.chain("copy")).data(canary), CANARY)
        store.put(layout.data(Multihash.sha3(bulky)), bulky)
        return cls(
            public=(f"/{UUID}/data/{named}", store.get(f"{layout.root}data/{named}")),
            private=f"/copy/data/{canary}",
            bulky=f"/{UUID}/data/{Multihash.sha3(bulky)}",
            chain=chain,
        )


class Attack:
    """``seen`` counts kinds and the statuses of answers; kinds may be tried from several threads."""

    def __init__(self, target: Target, port: int) -> None:
        self._target = target
        self._port = port
        self.seen: Counter[str] = Counter()

    def one(self, number: int) -> None:
        """The request of this number. Raises AssertionError for an answer that should not be."""
        draw = random.Random(number)
        kind = KINDS[number % len(KINDS)]
        kind(self, draw)
        self.seen[kind.__name__] += 1

    def malformed(self, draw: random.Random) -> None:
        """A request with other bytes in places, by somebody or nobody."""
        path, _ = self._target.public
        text = request(
            draw.choice((*["GET"] * 6, "HEAD", "PUT", "POST", "DELETE", "get", "\x16\x03")),
            draw.choice((*[path] * 4, self._target.private, "/secret.txt", f"/{UUID}/elsewhere", f"/{UUID}/refs/head")),
            draw.choice((None, READER, READER, "x" * 16)),
            b"",
            *draw.sample(_HEADERS, draw.randrange(3)),
        ).decode("latin-1")
        signs = list(text)
        for _ in range(draw.choice((0, 0, 1, 2, 3))):
            place = draw.randrange(len(signs))
            signs[place : place + draw.randrange(3)] = draw.choice(_SPLICES)
        body = draw.choice((b"", b"", b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n"))
        self._harmless(told(self._port, "".join(signs).encode("latin-1") + body))

    def truncated(self, draw: random.Random) -> None:
        """Less than a request, and then nobody."""
        whole = draw.choice(
            (
                request("GET", self._target.public[0]),
                request("PUT", f"/fresh/data/{Multihash.sha3(b'x')}", WRITER, b"x", "Content-Length: 100"),
                request("POST", f"/{UUID}/ingest", WRITER, b'{"id": 1', "Content-Length: 100"),
                upgrade(f"/{UUID}/pull") + frame(b'{"begin_after":null}', size=500),
            )
        )
        left(self._port, whole[: draw.randrange(1, len(whole) + 1)])

    def oversized(self, draw: random.Random) -> None:
        """More than is taken, of a path, a header, a body, or said to be."""
        much = "x" * draw.choice((9_000, 70_000, 300_000))
        match draw.randrange(6):
            case 0:
                self._refused(told(self._port, request("GET", f"/{UUID}/data/{much}")), 400, 404)
            case 1:
                self._refused(told(self._port, request("GET", self._target.public[0], None, b"", f"X: {much}")), 400)
            case 2:
                size = draw.choice((LARGEST + 1, 1 << 40, 10**18))
                path = f"/fresh/data/{Multihash.sha3(b'x')}"
                self._refused(told(self._port, request("PUT", path, WRITER, b"", f"Content-Length: {size}")), 413)
            case 3:
                body = request("POST", f"/{UUID}/ingest", WRITER, bytes(LARGEST + 1), "Content-Type: text/csv")
                self._refused(told(self._port, body), 413, 0)
            case 4:
                bomb = draw.choice((_BOMB, b"no gzip"))
                body = request(
                    "POST", f"/{UUID}/ingest", WRITER, bomb, "Content-Type: text/csv", "Content-Encoding: gzip"
                )
                self._refused(told(self._port, body), 413, 400, 0)
            case _:
                opened = upgrade(f"/{UUID}/pull") + frame(b"", size=draw.choice((LARGEST + 1, 1 << 40, 1 << 62)))
                self._harmless(Told(101, heard(self._port, opened)))

    def slow(self, draw: random.Random) -> None:
        """Begins, and then does nothing until it is cut off."""
        match draw.randrange(4):
            case 0:
                heard(self._port, b"GET /planes/refs/head HTT"[: draw.randrange(25)])
            case 1:
                begun = request("PUT", f"/fresh/data/{Multihash.sha3(b'x')}", WRITER, b"x", "Content-Length: 100")
                heard(self._port, begun)
            case 2:
                heard(self._port, upgrade(f"/{UUID}/{draw.choice(('pull', 'push'))}", WRITER))
            case _:
                stalled(self._port, request("GET", self._target.bulky))

    def unauthorised(self, draw: random.Random) -> None:
        """Well formed, of what is not theirs."""
        hash_, private = Multihash.sha3(b"x"), self._target.private
        method, path = draw.choice(
            (
                ("GET", private),
                ("HEAD", private),
                ("GET", "/copy/refs/head"),
                ("GET", "/copy/tail"),
                ("GET", "/copy/pull"),
                ("GET", "/copy/push"),
                ("GET", f"/{UUID}/push"),
                ("GET", "/made-up/refs/head"),
                ("PUT", f"/{UUID}/data/{hash_}"),
                ("PUT", f"/fresh/checkpoints/{hash_}"),
                ("POST", f"/{UUID}/ingest"),
            )
        )
        token = draw.choice((None, READER, "x" * 16, WRITER + "x", WRITER[:-1], "\xff" * 20, "x" * 7000))
        answer = told(self._port, request(method, path, token, b"x" if method != "GET" else b""))
        self._refused(answer, 403 if token == READER else 401)
        query = orjson.dumps({"query": draw.choice(("SELECT * FROM copy", "FROM read_text('/etc/passwd')"))})
        self._refused(told(self._port, request("POST", "/query", draw.choice((None, READER)), query)), 400)

    def frames(self, draw: random.Random) -> None:
        """Frames that are none, and messages that say nothing of sense."""
        side = draw.choice(("pull", "push"))
        sent = b"".join(self._frame(draw) for _ in range(draw.randrange(1, 6)))
        self._harmless(Told(101, heard(self._port, upgrade(f"/{UUID}/{side}", WRITER) + sent + frame(b"", 8))))

    def blocks(self, draw: random.Random) -> None:
        """A push whose blocks are under their right hashes, and FlatBuffers of somebody who has changed some bytes."""
        chain = list(self._target.chain)
        place = draw.randrange(len(chain))
        data = bytearray(chain[place].data)
        for _ in range(draw.randrange(1, 5)):
            at = draw.randrange(len(data))
            match draw.randrange(4):
                case 0:
                    data[at] ^= 1 << draw.randrange(8)
                case 1:
                    data[at : at + 4] = draw.choice((b"\xff" * 4, bytes(4), b"\x7f\xff\xff\xff"))
                case 2:
                    del data[at:]
                case _:
                    data[at:at] = draw.randbytes(draw.randrange(40))
            data = data or bytearray(b"\0")
        changed = bytes(data)
        chain[place:] = [Stored(Multihash.sha3(changed), changed)]
        asked: dict[str, Any] = {
            "current_head": None,
            "transfer_plan": {},
            "force_update_if_diverged": draw.random() < 0.5,
        }
        talk = [asked, {"new_blocks": batch_of(chain, Dialect.KAMU)}, {"object_files": []}, {"details": "Complete"}, {}]
        sent = b"".join(frame(orjson.dumps(each)) for each in talk) + frame(b"", 8)
        self._harmless(Told(101, heard(self._port, upgrade("/fresh/push", WRITER) + sent)))

    def _frame(self, draw: random.Random) -> bytes:
        good: list[dict[str, Any]] = [
            {"begin_after": None, "stop_at": None},
            {"current_head": str(self._target.chain[-1].hash), "transfer_plan": {}},
            {"new_blocks": batch_of(self._target.chain, Dialect.KAMU)},
            {"object_files": [{"object_type": "DataSlice", "physical_hash": str(Multihash.sha3(b"x")), "size": 1}]},
            {"object_files": [], "is_truncated": False},
            {"details": "Complete"},
            {},
        ]
        text = orjson.dumps(draw.choice(good))
        place = draw.randrange(len(text))
        match draw.randrange(9):
            case 0:
                return frame(text)
            case 1:
                return frame(text[:place])
            case 2:
                return frame(draw.randbytes(draw.randrange(200)), draw.choice((1, 2)))
            case 3:
                splice = draw.choice((b"9" * 30, b'"', b"[", b"}", b"\0", b"null", b"f1620"))
                return frame(text[:place] + splice + text[place + 1 :])
            case 4:
                return frame(b"[" * 5000)
            case 5:
                return frame(text, last=False) + frame(text, draw.choice((0, 1)))
            case 6:
                return frame(text, draw.choice((3, 9, 10, 11, 15)), last=draw.random() < 0.5)
            case 7:
                return frame(text, masked=False)
            case _:
                strange: dict[str, Any] = {name: draw.choice([None, 1, [], {}, "x"]) for name in draw.choice(good)}
                return frame(orjson.dumps(strange))

    def _refused(self, answer: Told, *statuses: int) -> None:
        self._harmless(answer)
        assert answer.status in statuses, answer

    def _harmless(self, answer: Told) -> None:
        assert CANARY[:40] not in answer.body, answer.body[:200]
        assert b"root:" not in answer.body, answer.body[:200]
        assert b"Traceback" not in answer.body, answer.body[:200]
        assert answer.status != 500, answer
        if answer.status in (200, 206) and len(answer.body) > 200:
            assert answer.body in self._target.public[1], answer.body[:200]
        self.seen[str(answer.status)] += 1


KINDS: Final[tuple[Callable[[Attack, random.Random], None], ...]] = (
    Attack.malformed,
    Attack.truncated,
    Attack.oversized,
    Attack.slow,
    Attack.unauthorised,
    Attack.frames,
    Attack.blocks,
)
