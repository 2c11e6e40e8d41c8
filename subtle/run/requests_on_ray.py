"""HTTP requests that the workers of a Ray cluster send, such as each to the vLLM server of its own machine.

Only the sending is spread. Which rows are asked, the cache of answers, retries, the rate limits and the budget stay
with the one client of the driver, so they hold for all workers together, and nothing that was answered is asked again
when a worker or the driver is lost.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import httpx2

from hf_datasets.generation.http_client import MAX_RESPONSE_BYTES
from subtle.engines import import_ray
from subtle.run.shared_config import EngineConfig

REQUESTS_PER_SENDER = 1000
TIMEOUTS = ("connect", "read", "write", "pool")


def sender_class() -> type:
    """The class of the actors that send requests. It travels as code: a worker may have the recipes elsewhere."""
    limit = MAX_RESPONSE_BYTES

    class Sender:
        def __init__(self) -> None:
            import httpx2

            self.transport = httpx2.AsyncHTTPTransport()

        async def send(
            self, method: str, url: str, headers: list[tuple[bytes, bytes]], body: bytes, seconds: dict[str, float]
        ) -> tuple[str, Any, Any]:
            """Status, headers and body as they came; or the name of an error, its message and None."""
            import httpx2

            request = httpx2.Request(method, url, headers=headers, content=body, extensions={"timeout": seconds})
            try:
                response = await self.transport.handle_async_request(request)
                received = bytearray()
                stream: Any = response.stream
                async for part in stream:
                    received += part
                    if len(received) > limit:  # the driver says so
                        break
                await response.aclose()
            except httpx2.TransportError as error:
                return type(error).__name__, str(error), None
            return str(response.status_code), response.headers.raw, bytes(received)

    return Sender


class SpreadTransport(httpx2.AsyncBaseTransport):
    """Lets actors send requests in turn.

    Args:
        senders: Actors of `sender_class`.
        lost: The errors that say that an actor is gone.
    """

    def __init__(self, senders: Sequence[Any], lost: type[Exception]) -> None:
        self.senders, self.lost = itertools.cycle(senders), lost

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The response as the server sent it.

        Raises:
            httpx2.TransportError: There was none, also where the worker was lost; the client tries again.
        """
        body = await request.aread()
        limits = request.extensions.get("timeout", {})
        seconds = {name: limits.get(name) for name in TIMEOUTS}
        call = next(self.senders).send.remote(request.method, str(request.url), request.headers.raw, body, seconds)
        try:
            status, headers, content = await call
        except self.lost as error:
            raise httpx2.ConnectError(f"the worker that sent it was lost ({type(error).__name__})") from error
        if content is None:
            kind = getattr(httpx2, status, httpx2.TransportError)
            raise kind(headers)
        return httpx2.Response(int(status), headers=headers, stream=httpx2.ByteStream(content), request=request)


def spread_transport(config: EngineConfig) -> SpreadTransport | None:
    """The transport of `--engine ray`, inside `engines.running`; None where this process sends.

    There are as many workers as machines that have a core to spare, unless a number is given.
    """
    if config.engine == "local":
        return None
    ray = import_ray()
    machines = sum(node["Alive"] and node["Resources"].get("CPU", 0) >= 1 for node in ray.nodes())
    actor = ray.remote(sender_class()).options(
        num_cpus=1, scheduling_strategy="SPREAD", max_restarts=-1, max_concurrency=REQUESTS_PER_SENDER
    )
    senders = [actor.remote() for _ in range(config.num_actors or max(1, machines))]
    return SpreadTransport(senders, ray.exceptions.RayError)
