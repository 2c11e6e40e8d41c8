"""Metrics of fine-grained video retrieval, loadable with `evaluate.load`; importing this registers their names.

`evaluate` itself is not imported here, so that this stays cheap. Each metric is also a plain function, for
example `metrics.map_at_k.scoring.mean_average_precision`.
"""

import warnings

from .installation import METRICS, install, modules_folder, space

__all__ = ["METRICS", "install", "space"]

try:
    for _name in METRICS:
        install(_name)
except OSError as _error:
    warnings.warn(
        f"the names {', '.join(METRICS)} were not registered with evaluate because {modules_folder()} cannot be "
        f"written ({_error}). Set HF_HOME to a folder that can be written, or load by path",
        stacklevel=2,
    )
