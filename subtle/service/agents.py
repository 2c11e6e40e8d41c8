"""The service for agents: its search, pictures and marks as tools of the Model Context Protocol, at `/mcp`."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from subtle.service.api import Asked, FoundMoment, Mark, Service

AGENT_INSTRUCTIONS = (
    "Search an archive of videos for moments by what happens in them. Describe an action in a sentence, or give a "
    "found moment and say what is different. Look at pictures before you name a result; scores are comparable within "
    "one search alone. more_like and less_like move a query towards moments that are right."
)


class Agents:
    """An application that answers at one address, without sessions; begun by its first request."""

    def __init__(self, service: Service) -> None:
        self.service = service
        server = MCPServer("subtle", instructions=AGENT_INSTRUCTIONS, log_level="WARNING")
        for tool in (self.search, self.look, self.mark):
            server.add_tool(self.telling(tool))
        # `Entrance` has looked at the host, the origin and the token.
        let_in = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        self.app = server.streamable_http_app(stateless_http=True, json_response=True, transport_security=let_in)
        self.manager = server.session_manager
        self.runner: asyncio.Task[None] | None = None
        self.is_ready = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102 of ASGI
        if self.runner is None:
            self.runner = asyncio.create_task(self.run())
        await self.is_ready.wait()
        await self.app(scope, receive, send)

    async def run(self) -> None:
        """Keep what the protocol needs between requests."""
        async with self.manager.run():
            self.is_ready.set()
            await asyncio.Event().wait()

    def telling(self, tool: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The tool, which tells an agent what was wrong with its question."""

        @wraps(tool)
        async def told(**given: Any) -> Any:
            try:
                async with asyncio.timeout(self.service.timeout_seconds):
                    return await tool(**given)
            except Exception as error:
                raise ToolError(self.service.said_of(error)) from error

        return told

    async def search(self, query: Asked) -> list[FoundMoment]:
        """Find the moments that fit best, best first; with a moment_id in the query the text says what is different."""
        return await self.service.find(query)

    async def look(self, moment_id: str) -> Image:
        """A picture of the middle of a moment."""
        picture = await run_in_threadpool(self.service.thumbnail, moment_id)
        return Image(path=str(picture.path))

    async def mark(self, moment_id: str, is_right: bool, text: str = "") -> str:
        """Keep for later training whether a found moment is right for the text that was searched."""
        await run_in_threadpool(self.service.mark, Mark(moment_id=moment_id, is_right=is_right, text=text))
        return "kept"
