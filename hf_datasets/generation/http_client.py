"""The HTTP client of a chat model, which limits the size of a response."""

import zlib
from typing import Any

import httpx2
from openai import APIError, DefaultAsyncHttpxClient

MAX_RESPONSE_BYTES = 16_000_000
MAX_FILE_BYTES = 1_000_000_000
"""Of a file of batch answers: enough for 50,000 of them."""

GZIP = zlib.MAX_WBITS | 16


class ResponseTooLongError(APIError):
    """A response body that is longer than any answer can be."""

    def __init__(self, request: httpx2.Request, limit: int) -> None:
        super().__init__(f"the response is longer than {limit:,} bytes", request, body=None)


class BoundedClient(DefaultAsyncHttpxClient):
    """OpenAI's HTTP client; a response beyond a limit is closed, so that no server can fill the memory."""

    def __init__(self, **options: Any) -> None:
        super().__init__(headers={"Accept-Encoding": "gzip"}, **options)

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """The response, read whole unless `stream` is set.

        Raises:
            ResponseTooLongError: Its body, unpacked, is longer than `MAX_RESPONSE_BYTES`, that of a file than
                `MAX_FILE_BYTES`.
            httpx2.DecodingError: It cannot be unpacked.
        """
        response = await super().send(request, stream=True, **options)
        if stream:
            return response
        limit = MAX_FILE_BYTES if request.url.path.endswith("/content") else MAX_RESPONSE_BYTES
        is_packed = response.headers.get("content-encoding") == "gzip"
        unpacker = zlib.decompressobj(GZIP)
        body, received = bytearray(), 0
        try:
            async for part in response.aiter_raw():
                received += len(part)
                body += unpacker.decompress(part, limit + 1 - len(body)) if is_packed else part
                if max(received, len(body)) > limit:
                    raise ResponseTooLongError(request, limit)
        except zlib.error as error:
            raise httpx2.DecodingError(str(error), request=request) from error
        finally:
            await response.aclose()
        body_headers = {"content-encoding", "content-length", "transfer-encoding"}
        headers = [(name, value) for name, value in response.headers.multi_items() if name not in body_headers]
        return httpx2.Response(
            response.status_code,
            headers=headers,
            content=bytes(body),
            request=response.request,
            extensions=response.extensions,
            history=response.history,
        )
