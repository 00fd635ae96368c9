"""One call of an engine: a request, and a stream of responses of which one is the result (EN-03, EN-15)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import grpc

from kubothek.errors import EngineFailed, EngineMisbehaved, FormatInvalid, InputError, TransformInvalid
from kubothek.odf.spec.engine_messages import (
    TransformRequest,
    TransformResponseInternalError,
    TransformResponseInvalidQuery,
    TransformResponseProgress,
    TransformResponseRoot,
    TransformResponseSuccess,
    decode_message,
    encode_message,
)
from kubothek.odf.spec.engine_wire import (
    EXECUTE_TRANSFORM,
    MOST_ANSWER_BYTES,
    MOST_REQUEST_BYTES,
    SERVICE,
    enveloped,
    unwrapped,
)

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MOST_ANSWER_BYTES),
    ("grpc.max_send_message_length", MOST_REQUEST_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
)
_MOST_TEXT: Final = 1000
"""Number of characters of an engine's text that a message shows."""
_MISBEHAVED: Final = {
    grpc.StatusCode.UNIMPLEMENTED: f"it does not know {EXECUTE_TRANSFORM}: it is no engine of Open Data Fabric",
    grpc.StatusCode.INVALID_ARGUMENT: "it refuses the request",
}


def transformed(
    address: str, request: TransformRequest, *, patience: float, timeout: float, told: Callable[[], None]
) -> TransformResponseSuccess:
    """Run a transformation in an engine.

    ``patience``  seconds until it must listen
    ``timeout``   seconds until it must answer
    ``told``      called at each progress response

    Raises TransformInvalid if it rejects the query, EngineFailed if it fails, dies or does not answer,
    EngineMisbehaved for an invalid response, InputError for a request that is too large.
    """
    message = enveloped(encode_message(request))
    if len(message) > MOST_REQUEST_BYTES:
        raise InputError(
            f"the request to the engine has {len(message)} bytes, of {MOST_REQUEST_BYTES} that it may have"
        )
    with grpc.insecure_channel(address, options=_OPTIONS) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=patience)
        except grpc.FutureTimeoutError:
            raise EngineFailed(
                f"no engine listens on {address} after {patience:g} s: see the log of its container, and check that "
                "this is its port"
            ) from None
        method: Any = channel.unary_stream(f"/{SERVICE}/{EXECUTE_TRANSFORM}")
        answers = method(message, timeout=timeout)
        try:
            return _answer(answers, told)
        except grpc.RpcError as error:
            raise _failure(error, timeout) from error
        finally:
            answers.cancel()


def _answer(answers: Iterable[bytes], told: Callable[[], None]) -> TransformResponseSuccess:
    """Return the first response other than progress."""
    for message in answers:
        try:
            value = decode_message(TransformResponseRoot, unwrapped(message)).value
        except FormatInvalid as error:
            raise EngineMisbehaved(f"the engine answers in bytes that are no answer: {error}") from error
        match value:
            case TransformResponseProgress():
                told()
            case TransformResponseSuccess():
                return value
            case TransformResponseInvalidQuery():
                raise TransformInvalid(f"the engine does not take the query: {_cut(value.message)}")
            case TransformResponseInternalError():
                raise EngineFailed(f"the engine failed: {_cut(value.message)}")
            case _:
                raise EngineMisbehaved("the engine answers in terms of a later version of Open Data Fabric")
    raise EngineFailed("the engine ended without an answer: see the log of its container")


def _failure(error: grpc.RpcError, timeout: float) -> EngineFailed | EngineMisbehaved:
    code, details = error.code(), _cut(error.details() or "")
    if code in _MISBEHAVED:
        return EngineMisbehaved(f"the engine does not keep the contract: {_MISBEHAVED[code]}: {details}")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return EngineFailed(f"the engine did not answer within {timeout:g} s")
    return EngineFailed(f"the engine broke off ({code.name}): {details}; see the log of its container")


def _cut(text: str) -> str:
    """Return the text on one line, without control characters."""
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"
