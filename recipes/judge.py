"""Ask a multimodal language model which of two paragraphs fits a video (VideoComp, Table 7).

    python recipes/judge.py
    python recipes/judge.py --model gpt-4o --dry_run
    python recipes/judge.py --model Qwen/Qwen2.5-VL-7B-Instruct --base_url http://localhost:8000/v1
    python recipes/judge.py --model gpt-4o --dataset_config release --data_dir DIR --video_dir DIR --max_usd 20

Frames go as JPEG images with the question that the data have, or with `--own_questions` the paper's, the candidates
shuffled by the seed; "1", "2", "(1)" and "(2)" are answers, any other reply is wrong, or with `--leave_out_unreadable`
counted apart; a question without a reply is never right or wrong. Answers are kept as they arrive, so a killed
run started again pays nothing twice. Without `--model` the rule-based judge answers, which does not see the frames and
takes the longer text: a check of the steps, and a baseline of how much the length of a text gives away.

`--counterfactual` asks three more questions of each segment mismatch: which text fits the stretch that the negative
text describes, and which of the two stretches each text fits. Text, video and group score are over the mismatches with
all four; chance is 25, 25 and 16.7 %.
"""

import sys
from functools import partial

from subtle.evaluate.options import JudgeConfig
from subtle.options import parse_config, run_recipe

if __name__ == "__main__":
    CONFIG = parse_config(JudgeConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.evaluate.judge import main
    from subtle.run.build import run_build

    sys.exit(run_recipe(partial(run_build, main), CONFIG))
