"""Check this machine: versions, GPUs, decoders, limits, and whether training computes here what it should.

    python recipes/doctor.py
    python recipes/doctor.py --device cpu --output_dir outputs/doctor

Says of each check ok, warning or failed, and what to do. Ten steps of stage1, stage2, vidclip and finetune_vlm train on
the miniature, on the processor in 32 bits and then on the device and in bfloat16, and their losses are compared. Writes
`OUTPUT_DIR/doctor.json` and `doctor.txt`, without names of folders or variables of the environment, to be sent with a
question. Exit status 1 if something failed.
"""

import sys

from subtle.checking.options import DoctorConfig
from subtle.options import parse_config, run_recipe

if __name__ == "__main__":
    CONFIG = parse_config(DoctorConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.checking.doctor import main

    sys.exit(run_recipe(main, CONFIG))
