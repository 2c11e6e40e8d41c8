"""What to do about an error of the Hub or of its client, in one line."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
from huggingface_hub import constants
from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled

OF_ANSWERS = (RuntimeError, ValueError, KeyError, TypeError, AttributeError)
"""What the client raises of metadata that the Hub refuses, and of an answer that no Hub gives."""
LOG_IN = "log in with `hf auth login`, or set HF_TOKEN to a token with write access"


class PublishingError(OSError):
    """The Hub or the way to it does not let a publication through."""


@contextmanager
def explained(repo_id: str) -> Iterator[None]:
    """Turn the errors of the client into one that names the repository and the cure.

    Raises:
        PublishingError: In place of theirs.
    """
    try:
        yield
    except (httpx2.HTTPError, OfflineModeIsEnabled, LocalTokenNotFoundError, *OF_ANSWERS) as error:
        # Parts of an upload run in threads, whose errors come wrapped.
        cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        raise PublishingError(explanation(cause, repo_id)) from error


def explanation(error: BaseException, repo_id: str) -> str:
    """The line."""
    if isinstance(error, OfflineModeIsEnabled):
        return f"{repo_id} cannot be reached in offline mode; unset HF_HUB_OFFLINE (a dry run needs no connection)"
    if isinstance(error, LocalTokenNotFoundError):
        return f"there is no token to write to {repo_id} with; {LOG_IN}"
    if isinstance(error, HfHubHTTPError):
        return of_status(error, repo_id)
    if isinstance(error, httpx2.HTTPError):
        return (
            f"no connection to {constants.ENDPOINT} ({error or type(error).__name__}); {repo_id} is as it was, or "
            "complete if the connection broke at the very end: run again"
        )
    return f"{repo_id} is not accepted: {' '.join(str(error).split())}"


def of_status(error: HfHubHTTPError, repo_id: str) -> str:
    """What a status of the Hub means for a publication."""
    status = error.response.status_code
    said = error.server_message or error.response.headers.get("X-Error-Message") or error.response.reason_phrase
    namespace = repo_id.partition("/")[0]
    if status == 401:
        return f"the Hub does not accept the token; {LOG_IN}"
    if status in {403, 404}:
        return (
            f"the token may not write to {repo_id} ({said}); it needs write access and, where {namespace!r} is an "
            "organization, a role in it that may write"
        )
    if status == 412:
        return (
            f"{repo_id} was changed by someone else meanwhile, so nothing was published; run again, with --dry_run "
            "first to see what would happen to it"
        )
    if status >= 500:
        return (
            f"the Hub failed ({status}, {said}), and nothing of {repo_id} was published; run again: large files that "
            "arrived are not sent again"
        )
    return f"the Hub refuses {repo_id} ({status}): {' '.join(said.split())}"
