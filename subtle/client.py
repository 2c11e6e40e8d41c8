"""A client of the service that `subtle serve` runs.

import subtle

with subtle.Client("http://127.0.0.1:7860") as client:
    found = client.search(clip="query.mp4", start_seconds=3.2, end_seconds=5.0, text="with two turns")
    client.mark(found[0], is_right=True, text="with two turns")
"""

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2

from subtle.index import Moment


class ServiceError(Exception):
    """The service refused a request.

    Attributes:
        status: Of HTTP: 401 without its token, 404 of a moment that is not there, 408 if it took too long, 413 of too
            large a clip, 422 of what cannot be, 429 too often, 503 if it cannot answer now.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Client:
    """Searches an index that another process serves; threads may share it.

    Args:
        address: Where the service is.
        token: That it asks for; None: of the environment variable SUBTLE_TOKEN, if it is set.
        timeout_seconds: Longest wait for an answer.
    """

    def __init__(self, address: str, *, token: str | None = None, timeout_seconds: float = 60.0) -> None:
        token = token or os.environ.get("SUBTLE_TOKEN")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.http = httpx2.Client(base_url=address, headers=headers, timeout=timeout_seconds)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def search(
        self,
        *,
        text: str | None = None,
        clip: str | Path | None = None,
        more_like: Sequence[Moment | str] = (),
        less_like: Sequence[Moment | str] = (),
        **options: Any,
    ) -> list[Moment]:
        """The moments that fit best, best first; as `Index.search`.

        Args:
            text: What to look for, or what is different from the clip.
            clip: Video file, which is sent; or `moment_id=...` for one of the index.
            more_like: Found moments that are right, or their ids.
            less_like: Those that are wrong.
            options: `moment_id`, `start_seconds`, `end_seconds`, `limit`, `where`, `folder`, `min_score`,
                `exclude_same_video`.

        Raises:
            ServiceError: The service refuses.
            OSError: The clip cannot be read, or the service not be reached.
        """
        marks = {"more_like": [id_of(one) for one in more_like], "less_like": [id_of(one) for one in less_like]}
        asked = {"text": text, **marks, **options}
        with ExitStack() as stack:
            sent: dict[str, Any] = {"json": asked}
            if clip is not None:
                file = stack.enter_context(Path(clip).open("rb"))
                sent = {"data": {"query": json.dumps(asked)}, "files": {"clip": (Path(clip).name, file)}}
            return [Moment(**row) for row in self.answer("POST", "/search", **sent).json()["moments"]]

    def moment(self, moment_id: str) -> Moment:
        """A moment by its id; its score is 0."""
        row = self.answer("GET", f"/moments/{quote(moment_id, safe='')}").json()
        return Moment(**row | {"score": row["score"] or 0.0})

    def clip(self, moment: Moment | str) -> bytes:
        """A moment as an MP4 file."""
        return self.answer("GET", f"/moments/{quote(id_of(moment), safe='')}/clip.mp4").content

    def thumbnail(self, moment: Moment | str) -> bytes:
        """A JPEG picture of a moment."""
        return self.answer("GET", f"/moments/{quote(id_of(moment), safe='')}/thumbnail.jpg").content

    def mark(
        self, moment: Moment | str, *, is_right: bool | None, text: str = "", query_moment_id: str | None = None
    ) -> None:
        """Say that a moment is right or wrong for a query; None takes it back."""
        body = {"moment_id": id_of(moment), "is_right": is_right, "text": text, "query_moment_id": query_moment_id}
        self.answer("POST", "/marks", json=body)

    def health(self) -> dict[str, Any]:
        """How many moments there are, and by which model."""
        return dict(self.answer("GET", "/health").json())

    def answer(self, method: str, path: str, **sent: Any) -> httpx2.Response:
        """What the service answers.

        Raises:
            ServiceError: It refuses.
            OSError: It cannot be reached.
        """
        try:
            answer = self.http.request(method, path, **sent)
        except httpx2.TransportError as error:
            raise OSError(f"{self.http.base_url} cannot be reached: {error}; start it with `subtle serve`") from error
        if answer.is_error:
            is_problem = answer.headers.get("content-type", "").startswith("application/problem+json")
            raise ServiceError(answer.status_code, answer.json()["detail"] if is_problem else answer.text[:200])
        return answer


def id_of(moment: Moment | str) -> str:
    """A moment's id."""
    return moment.moment_id if isinstance(moment, Moment) else moment
