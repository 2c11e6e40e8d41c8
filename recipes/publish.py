"""Publish a dataset, a model, an adapter, embeddings, a metric or a Space on the Hub, each in one commit.

    python recipes/publish.py dataset tfcovr --repo ORG/tfcovr --dry_run
    python recipes/publish.py dataset tfcovr:mini,mini-clips --repo ORG/tfcovr --private --tag v1
    python recipes/publish.py dataset outputs/build_tfcovr --repo ORG/my-triplets
    python recipes/publish.py model outputs/stage2/model --repo ORG/my-retriever
    python recipes/publish.py adapter miniature-aim --repo ORG/miniature-aim --base_repo ORG/miniature-clip
    python recipes/publish.py classifier miniature-aim --repo ORG/miniature-aim-classifier
    python recipes/publish.py embeddings outputs/embeddings/stage1 --repo ORG/my-embeddings
    python recipes/publish.py metric map_at_k --repo ORG/map_at_k
    python recipes/publish.py space FOLDER --repo ORG/my-page
    python recipes/publish.py demo --repo ORG/subtle-demo
    python recipes/publish.py all --org ORG --dry_run

NAME is a registered dataset, a folder of `recipes/weights`, a metric, or a folder. `--dry_run` lists files, sizes and
what would change, sends nothing, and needs neither token nor connection. Files of an earlier publication that the new
one lacks are removed. A card that was edited on the Hub stays, without `--replace_card`. Text that names a folder of
this machine is refused. A classifier is an adapter in its base: transformers runs it without PEFT and without this
project. A failed run leaves the repository as it was; run again, it does not send files that arrived.
"""

import sys

from subtle.hub.options import PublishConfig
from subtle.options import first_words_as, parse_config, run_recipe

if __name__ == "__main__":
    sys.argv[1:] = first_words_as(["what", "name"], sys.argv[1:])
    CONFIG = parse_config(PublishConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.hub.publish import main

    sys.exit(run_recipe(main, CONFIG))
