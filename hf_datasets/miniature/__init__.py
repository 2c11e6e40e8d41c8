"""Rendered athletes: the default data of every dataset, made on this machine without a download.

Example:
    >>> from hf_datasets.miniature import ACTIONS, MiniatureConfig, plan_competitions
    >>> len(ACTIONS), len(plan_competitions(MiniatureConfig()))
    (112, 72)
"""

from hf_datasets.miniature.actions import ACTIONS, Action
from hf_datasets.miniature.competitions import MiniatureConfig, plan_competitions
from hf_datasets.miniature.render import contact_sheet, prepare_miniature

__all__ = ["ACTIONS", "Action", "MiniatureConfig", "contact_sheet", "plan_competitions", "prepare_miniature"]
