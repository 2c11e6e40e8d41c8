"""The project's metrics, as recipes load them."""

import evaluate

import metrics


def load_metric(name: str) -> evaluate.EvaluationModule:
    """One of the metrics that are installed with this package, by its name; no network is needed."""
    evaluate.logging.set_verbosity_error()  # it warns that the installed metric is the one it uses
    return evaluate.load(metrics.space(name))
