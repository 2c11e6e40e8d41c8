"""Queries with several moments or none, fuzzed: refused with a ValueError of the metric, or shares."""

import random

from odd_values import mutated

from metrics.vcmr_recall.scoring import moment_retrieval_recall
from metrics.vcmr_recall.tests import test_cases as examples

BASES = [{name: case[name] for name in ("predictions", "references", "options")} for case in examples[3:]]


def test_mutated_queries_with_several_moments_or_none_are_refused_or_give_shares():
    rng, refused = random.Random("several moments"), 0
    for _ in range(400):
        base = rng.choice(BASES)
        case = mutated(rng, base)
        options = case.get("options", {})
        if case.keys() != base.keys() or not isinstance(options, dict) or not options.keys() <= base["options"].keys():
            continue
        try:
            result = moment_retrieval_recall(case["predictions"], case["references"], **options)
        except ValueError:
            refused += 1
            continue
        names = result.keys() - {"signature", "queries_without_moment"}
        assert all(0 <= result[name] <= 1 for name in names), case
    assert 0 < refused < 400
