"""The Space's page: compute the metric on rows given as JSON."""

import json
import runpy
from pathlib import Path

import evaluate
import gradio

HERE = Path(__file__).parent
shown = runpy.run_path(str(HERE / "tests.py"))
metric = evaluate.load(str(HERE / f"{shown['metric']}.py"))


def compute(predictions: str, references: str, options: str) -> dict:
    try:
        return metric.compute(
            predictions=json.loads(predictions),
            references=json.loads(references),
            **json.loads(options or "{}"),
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise gradio.Error(str(error)) from error


examples = [
    [json.dumps(case["predictions"]), json.dumps(case["references"]), json.dumps(case.get("options", {}))]
    for case in shown["test_cases"]
]
page = gradio.Interface(
    fn=compute,
    inputs=[gradio.Code(language="json", label=name) for name in ("predictions", "references", "options")],
    outputs=gradio.JSON(label="results"),
    examples=examples,
    title=metric.name,
    description=metric.description,
    article=(HERE / "README.md").read_text(encoding="utf-8").split("---\n", 2)[-1],
    flagging_mode="never",
)

if __name__ == "__main__":
    page.launch()
