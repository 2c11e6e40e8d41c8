"""A metric without the rest: rank with any system, measure with `evaluate`, compare two systems.

    python examples/metric_alone.py

No model and no video is needed, only lists of ids.
"""

import evaluate

import metrics  # noqa: F401 (makes the bare names known to evaluate, offline too)

RELEVANT = [["vault-7", "vault-9"], ["beam-2"], ["floor-1", "floor-4", "floor-8"]]
SYSTEMS = {
    "A": [["vault-7", "beam-2", "vault-9"], ["beam-2", "floor-1"], ["floor-1", "floor-4", "beam-2", "floor-8"]],
    "B": [["beam-2", "vault-7", "vault-9"], ["floor-1", "beam-2"], ["floor-1", "beam-2", "floor-4", "floor-8"]],
}


def main() -> None:
    """Print mAP of two rankings of the same queries and whether their difference can be chance."""
    map_at_k = evaluate.load("map_at_k")
    results = {
        name: map_at_k.compute(predictions=ranked, references=RELEVANT, k=[1, 5], per_query=True)
        for name, ranked in SYSTEMS.items()
    }
    for name, result in results.items():
        print(f"{name}: mAP@1 {result['map@1']:.3f}, mAP@5 {result['map@5']:.3f}")
    test = map_at_k.compare(results["A"], results["B"])["map@5"]
    print(f"A - B at 5: {test['difference']:+.3f}, p = {test['p_value']:.2f} over {len(RELEVANT)} queries")
    print(results["A"]["signature"])  # the protocol; two results are comparable where this is equal


if __name__ == "__main__":
    main()
