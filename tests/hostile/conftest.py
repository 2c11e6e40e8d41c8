# ruff: noqa: F401 fixtures of other files
"""Tiny data for every recipe."""

from tests.hostile.full_disk import small_disk
from tests.subtle.conftest import caches, embedded, tiny, tiny_comp
from tests.subtle.embedding.test_embed_moments import moments
from tests.subtle.evaluate.test_evaluate_tfcovr import trained as trained_models
from tests.subtle.footage.test_tune import base as tuning_base
from tests.subtle.footage.test_tune import myclips as tuning_clips
from tests.subtle.train.test_noise_evaluator import build as built_moments
from tests.subtle.train.test_noise_evaluator import clip as text_clip
from tests.subtle.train.test_vcmr import data as moment_features
