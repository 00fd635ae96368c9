"""The gRPC server: requests in, progress and one answer out (EN-03, EN-15, EN-18)."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import grpc

from kubothek.errors import FormatInvalid, InputError, LakeError
from kubothek.odf.engines.server.querying import raw_query
from kubothek.odf.engines.server.transforming import transform
from kubothek.odf.engines.server.volume import PathRefused, Volume
from kubothek.odf.engines.server.working import LIMITS, Abandoned, Limits, Working, answered
from kubothek.odf.spec import engine_messages as messages
from kubothek.odf.spec.engine_wire import (
    EXECUTE_RAW_QUERY,
    EXECUTE_TRANSFORM,
    MOST_ANSWER_BYTES,
    MOST_REQUEST_BYTES,
    SERVICE,
    enveloped,
    unwrapped,
)
from kubothek.sandbox import limited

log = logging.getLogger(__name__)

_Request = TypeVar("_Request")
_SIGN_SECONDS: Final = 2.0
"""Interval between progress responses."""
_AT_ONCE: Final = 2
"""Number of concurrent runs, each with its own database; others are queued."""
_CALLS: Final = 16
_MOST_TEXT: Final = 16_384
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MOST_REQUEST_BYTES),
    ("grpc.max_send_message_length", MOST_ANSWER_BYTES),
    ("grpc.so_reuseport", 0),
)


@dataclass(frozen=True, slots=True)
class _Operation:
    """One method: its request, its implementation, and the types of its responses. ``outputs``: fields with the paths
    of the files that it writes.
    """

    name: str
    request: type
    work: Callable[[Volume, Any], Any]
    outputs: tuple[str, ...]
    root: type
    progress: Callable[[], Any]
    invalid: Callable[..., Any]
    failed: Callable[..., Any]


_OPERATIONS: Final = (
    _Operation(
        EXECUTE_RAW_QUERY,
        messages.RawQueryRequest,
        raw_query,
        ("output_data_path",),
        messages.RawQueryResponseRoot,
        messages.RawQueryResponseProgress,
        messages.RawQueryResponseInvalidQuery,
        messages.RawQueryResponseInternalError,
    ),
    _Operation(
        EXECUTE_TRANSFORM,
        messages.TransformRequest,
        transform,
        ("new_data_path", "new_checkpoint_path"),
        messages.TransformResponseRoot,
        messages.TransformResponseProgress,
        messages.TransformResponseInvalidQuery,
        messages.TransformResponseInternalError,
    ),
)


class EngineServer:
    """Server of the engine. Use it as a context manager.

    ``address``  ``host:port``; port 0 is any free port
    ``volume``   the directory shared with coordinators, the only one that it reads and writes for them
    ``limits``   of each request
    """

    def __init__(self, address: str, volume: str, limits: Limits = LIMITS) -> None:
        limited.start()
        self._volume = Volume(volume)
        self._limits = limits
        self._workers = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="runs")
        calls = ThreadPoolExecutor(_CALLS, thread_name_prefix="calls")
        self._server = grpc.server(calls, options=_OPTIONS, maximum_concurrent_rpcs=_CALLS)
        handlers: dict[str, Any] = {
            each.name: grpc.unary_stream_rpc_method_handler(self._handler(each)) for each in _OPERATIONS
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self.port = self._server.add_insecure_port(address)

    def __enter__(self) -> EngineServer:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(0)

    def stop(self, grace: float) -> None:
        """Reject new calls; running ones have ``grace`` seconds."""
        self._server.stop(grace).wait()
        self._workers.shutdown(cancel_futures=True)

    def _handler(self, operation: _Operation) -> Callable[[bytes, grpc.ServicerContext], Iterator[bytes]]:
        def handle(message: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            try:
                request: Any = messages.decode_message(operation.request, unwrapped(message))
            except InputError as error:
                log.warning("%s: refused: %s", operation.name, error)
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, _cut(str(error)))
            working = Working(self._limits)
            context.add_callback(working.abandon)
            made = partial(answered, operation.work, operation.root)
            outputs = [getattr(request, name) for name in operation.outputs]
            done = self._workers.submit(working.run, made, self._volume, request, outputs)
            try:
                while True:
                    yield _encoded(operation, operation.progress())
                    if wait([done], _SIGN_SECONDS).done:
                        break
                yield self._answer(operation, done, context)
            finally:
                done.cancel()

        return handle

    def _answer(self, operation: _Operation, done: Future[bytes], context: grpc.ServicerContext) -> bytes:
        try:
            found: Any = done.result()
        except (PathRefused, Abandoned) as error:
            log.warning("%s: refused: %s", operation.name, error)
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, _cut(str(error)))
        except (InputError, FormatInvalid) as error:
            log.info("%s: invalid query: %s", operation.name, error)
            found = operation.invalid(message=_cut(str(error)))
        except LakeError as error:
            log.warning("%s: %s: %s", operation.name, error.reason, error)
            found = operation.failed(message=_cut(str(error)))
        except Exception as error:
            log.exception("%s: internal error", operation.name)
            told = "".join(traceback.format_exception(error))
            found = operation.failed(message=_cut(f"{type(error).__name__}: {error}"), backtrace=_cut(told))
        else:
            log.info("%s: done", operation.name)
            return enveloped(found)
        return _encoded(operation, found)


def _encoded(operation: _Operation, value: Any) -> bytes:
    return enveloped(messages.encode_message(operation.root(value=value)))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"
