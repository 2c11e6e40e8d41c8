"""Rendered athletes: the default data of every dataset, made on this machine without a download; and a harder tier.

Example:
    >>> from hf_datasets.miniature import ACTIONS, ALL_ACTIONS, HARD, MiniatureConfig, plan_competitions
    >>> len(ACTIONS), len(plan_competitions(MiniatureConfig()))
    (112, 72)
    >>> len(ALL_ACTIONS), HARD.videos_per_split["test"]
    (213, 60)
"""

from hf_datasets.miniature.actions import ACTIONS, ALL_ACTIONS, Action
from hf_datasets.miniature.competitions import HARD, TIERS, MiniatureConfig, plan_competitions
from hf_datasets.miniature.render import film_strips, prepare_miniature

__all__ = [
    "ACTIONS",
    "ALL_ACTIONS",
    "HARD",
    "TIERS",
    "Action",
    "MiniatureConfig",
    "film_strips",
    "plan_competitions",
    "prepare_miniature",
]
