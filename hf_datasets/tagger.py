"""The part-of-speech tagger of English captions."""

from functools import cache

from HanTa.HanoverTagger import HanoverTagger


@cache
def english_tagger() -> HanoverTagger:
    """The tagger, whose model is read once; its tags are those of CLAWS 5."""
    return HanoverTagger("morphmodel_en.pgz")
