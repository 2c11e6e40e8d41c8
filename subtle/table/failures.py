"""Why a row of a table could not be measured, in one line."""

import torch

from subtle.running import users_mistake


def reason_of(error: BaseException, out_of_memory: str) -> str:
    """What a row's failure is put down to.

    Args:
        error: that ended the row.
        out_of_memory: what to say where the GPU's memory was too small.

    Raises:
        BaseException: it is a bug.
    """
    if isinstance(error, torch.OutOfMemoryError):
        return out_of_memory
    if isinstance(error, SystemExit) and isinstance(error.code, str):
        return " ".join(error.code.split())
    mistake = users_mistake(error)
    if mistake is None:
        raise error
    return " ".join(str(mistake).split())
