"""Data sets of fine-grained video retrieval; importing this registers their names with `load_dataset`."""

from hf_datasets.records import Clip, ContrastPair, LabelPair, Moment, Rejection, Triplet
from hf_datasets.registration import prepare, register

register()

__all__ = ["Clip", "ContrastPair", "LabelPair", "Moment", "Rejection", "Triplet", "prepare", "register"]
