"""A dataset on the web as a repository: by the smart protocol, with all new blocks in one message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from threading import Lock
from types import TracebackType
from typing import Final, Self

from kubothek.errors import ChainCorrupt, FormatInvalid, InputError, ObjectNotFound, StoreError
from kubothek.odf.named import Named, named_by
from kubothek.odf.spec.blocks import link_of
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.sync.repository import Stream
from kubothek.odf.sync.smart.batch import blocks_of
from kubothek.odf.sync.smart.client import Conversation
from kubothek.odf.sync.smart.messages import Dialect, Refused, Transfer, named_of, reference, render
from kubothek.odf.sync.web import Web, WebRepository, streamed

_FEW: Final = 16
"""Up to this number, single requests for blocks are faster than a probe for the smart protocol."""
_BULK: Final = 500
"""Objects per request for their URLs; the first request is sent as soon as the blocks have arrived."""
_LEFT: Final = timedelta(seconds=30)
"""URLs that expire sooner are requested again."""


class SmartRepository:
    """A context manager. The simple protocol is used for what the smart one does not provide: the head, which is mostly
    all that is needed, and blocks of a chain that does not extend ours.

    ``after``, ``length``  our last block, and the number of our blocks
    ``asking``             the URL does not name the smart protocol: probe for it, if the number of the first block
                           shows that many new ones follow
    """

    def __init__(self, web: Web, after: Multihash | None, length: int, *, asking: bool = False) -> None:
        self._web = web
        self._after = after
        self._length = length
        self._asking = asking
        self._at_once = None if asking else True
        self._simple = WebRepository(web)
        self._lock = Lock()
        self._held = ExitStack()
        self._talk: Conversation | None = None
        self._blocks: dict[Multihash, bytes] | None = None
        self._until: Multihash | None = None
        self._named: Sequence[Named] = ()
        self._was_asked = False
        self._places: dict[Named, Transfer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    @property
    def url(self) -> str:
        """Return the URL for messages."""
        return self._web.url

    def head(self) -> Multihash:
        """Return the last block, by one request of the simple protocol."""
        return self._simple.head()

    def block(self, block: Multihash) -> bytes:
        """Return a block. The first call, or the second one with ``asking``, fetches all new blocks."""
        with self._lock:
            self._until = self._until or block
            if self._at_once is None:
                data = self._simple.block(block)
                self._at_once = _number(data) - self._length > _FEW
                return data
            if self._at_once and self._blocks is None:
                self._blocks = self._pulled_if_it_can(self._until)
            found = self._blocks.pop(block, None) if self._blocks else None
        return self._simple.block(block) if found is None else found

    def size(self, link: Multihash) -> int:
        """Return the size of the data object of this hash, by the simple protocol."""
        return self._simple.size(link)

    @contextmanager
    def stream(self, named: Named, start: int) -> Iterator[Stream]:
        """Stream the bytes of an object, from the store behind the server if the server offers that."""
        place = self._place(named)
        if place is None or place.url is None:
            with self._simple.stream(named, start) as stream:
                yield stream
            return
        with streamed(self._web, place.url, named, start, dict(place.headers)) as stream:
            yield stream

    def _pulled_if_it_can(self, until: Multihash) -> dict[Multihash, bytes]:
        if not self._asking:
            return self._pulled(until)
        try:
            return self._pulled(until)
        except (StoreError, InputError, ChainCorrupt):  # a plain web server, for instance
            return {}  # the walk reports what is wrong with a chain

    def _pulled(self, until: Multihash) -> dict[Multihash, bytes]:
        """Fetch the blocks after ours, up to the first one requested: later ones are stored already."""
        talk = self._held.enter_context(Conversation(self._web, "pull"))
        after = None if self._after is None else str(self._after)
        asked = {"begin_after": after, "stop_at": str(until), "force_update_if_diverged": False}
        try:
            talk.ask(render(asked, Dialect.VERSIONED), "transfer_plan")
        except Refused as error:
            if error.code != "InvalidInterval":
                raise
            return {}  # their chain does not extend ours: the walk finds out where it diverges
        came = blocks_of(talk.ask(render({}, Dialect.VERSIONED), "blocks")["blocks"])
        self._talk, self._named = talk, named_by(came)
        if self._named:  # concurrently with the verification of the blocks
            self._ask(talk, self._named[:_BULK])
        return {block.hash: block.data for block in came}

    def _place(self, named: Named) -> Transfer | None:
        with self._lock:
            if (talk := self._talk) is None:
                return None
            if self._was_asked:
                self._learn(talk)
            place = self._places.get(named)
            if place is None or _expires(place):
                self._ask(talk, self._with_others(named))
                self._learn(talk)
                place = self._places.get(named)
            if place is None:
                raise ObjectNotFound(str(named), self.url)
            return place

    def _with_others(self, named: Named) -> Sequence[Named]:
        """Return the objects whose URLs are requested with that of this one; their transfers start in any order."""
        if named not in self._named:
            return [named]
        start = self._named.index(named) // _BULK * _BULK
        return self._named[start : start + _BULK]

    def _ask(self, talk: Conversation, named: Sequence[Named]) -> None:
        talk.tell(render({"object_files": [reference(each) for each in named]}, Dialect.VERSIONED))
        self._was_asked = True

    def _learn(self, talk: Conversation) -> None:
        """Read the answer to the last request for URLs."""
        self._was_asked = False
        answer = talk.answer("object_transfer_strategies")
        try:
            for each in answer["object_transfer_strategies"]:
                self._places[named_of(each["object_file"])] = Transfer.of_json(each["download_from"])
        except (KeyError, TypeError) as error:
            raise FormatInvalid(f"{self.url}: no answer where objects are: {error!r}") from None


def _number(block: bytes) -> int:
    """Return the sequence number of a block, unverified."""
    try:
        return link_of(block)[0]
    except FormatInvalid:
        return 0  # the walk reports the damage


def _expires(place: Transfer) -> bool:
    return place.expires is not None and place.expires - datetime.now(UTC) < _LEFT
