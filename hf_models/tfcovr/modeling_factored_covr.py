"""FactoredCoVR: compose a video and a modification text into the label that they ask for, and compare labels."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers import initialization as init
from transformers.utils import ModelOutput

from .composed_labels import compose_labels, shared_words, words_of_label
from .configuration_factored_covr import FactoredCoVRConfig
from .distributed_gather import gather_with_gradient
from .factored_classifier import FactoredClassifier
from .layers_aim import label_head
from .modeling_aim import AIMForVideoClassification
from .modeling_tfcovr import TFCoVRForComposedRetrieval

SOURCES = 4
"""Labels that the clip of a query may show, the likeliest ones, from which a text leads to others."""
STRENGTHS = (-4.0, 7.0, 5.0, -6.0)
"""Where the logit of a word in the label that is asked for starts, and what it gains if the text has the word, if the
clip's label has it, and if both have it. Each text changes the four, by `STEP` times what a linear layer gives."""
STEP = 8.0
COMPOSED_BIAS = 0.5
"""What the logit of a label that nobody has trained on gains in a query; more finds such labels better, and the others
less (RESULTS.md has both)."""
WORD_DECAY = 1e-2
"""Half of the squared weights of words costs as much of their loss."""


class Shown(NamedTuple):
    """What clips show: log-probabilities of labels, `(B, num_trained_labels)` and `(B, num_labels)`.

    Attributes:
        label: of the labels that are trained on, by the classifier that knows them one by one.
        words: of all labels, by the one that knows words alone.
    """

    label: Tensor
    words: Tensor

    def combined(self) -> Tensor:
        """Log-probabilities of all labels, `(B, num_labels)`.

        Words decide between the labels that are trained on, as a whole, and each of the others; between those that are
        trained on both experts do, by the geometric mean of their probabilities.
        """
        trained, others = self.words.split([self.label.shape[1], self.words.shape[1] - self.label.shape[1]], -1)
        share = trained.logsumexp(-1, keepdim=True)
        return torch.cat([((trained + self.label) / 2).log_softmax(-1) + share, others], -1)

    def embeds(self) -> Tensor:
        """The square roots of the probabilities, which have unit length, `(B, num_labels)`."""
        return (self.combined() / 2).exp()


class RequestedLabels(NamedTuple):
    """What queries ask for: log-probabilities of labels.

    Attributes:
        label: `(B, num_trained_labels)`, by the classifier that knows them one by one.
        words: `(B, num_labels)`, of what the text makes of the labels that the clip may show.
        trained: `(B, num_trained_labels)`, the same where no label but these is possible, which training reads: that
            others do not occur there says nothing of them.
    """

    label: Tensor
    words: Tensor
    trained: Tensor

    def embeds(self) -> Tensor:
        """The probabilities of labels, by both experts as of a clip, scaled to unit length, `(B, num_labels)`."""
        return F.normalize(Shown(self.label, self.words).combined().exp(), dim=-1)


class WordFinder(nn.Module):
    """Find the words that labels have in texts, by their tokens, wherever these stand.

    Args:
        word_tokens: of each word the ids of its tokens; one without any is never found.
    """

    token_ids: Tensor
    membership: Tensor

    def __init__(self, word_tokens: Sequence[Sequence[int]]) -> None:
        super().__init__()
        self.word_tokens = word_tokens
        self.register_buffer("token_ids", self.ids())
        self.register_buffer("membership", self.make_membership())

    def ids(self) -> Tensor:
        """The tokens of all words, `(T,)`."""
        return torch.tensor(sorted({token for tokens in self.word_tokens for token in tokens}), dtype=torch.int64)

    def make_membership(self) -> Tensor:
        """Which word has which of them, `(num_words, T)`, 0 or 1."""
        ids = self.ids()
        of_words = (torch.tensor(tokens, dtype=ids.dtype) for tokens in self.word_tokens)
        return torch.stack([torch.isin(ids, tokens).float() for tokens in of_words])

    def forward(self, input_ids: Tensor) -> Tensor:
        """Which words each text has, `(B, num_words)`, 0 or 1.

        Args:
            input_ids: `(B, L)` token ids.
        """
        has_token = (input_ids[:, :, None] == self.token_ids).any(1).to(self.membership.dtype)
        number = self.membership.sum(1)
        found: Tensor = (has_token @ self.membership.T == number) & (number > 0)
        return found.to(self.membership.dtype)


class WordEdit(nn.Module):
    """What a modification text makes of a label: the words that it names come, and of the others some stay.

    Four numbers of the text say how strongly, for all words alike, so that this also holds for labels that nobody has
    trained on. Besides, a word that is named brings others with it.

    Args:
        size: of a text's embedding.
        num_words: that labels have.
    """

    def __init__(self, size: int, num_words: int) -> None:
        super().__init__()
        self.strengths = nn.Linear(size, 4)
        self.company = nn.Parameter(torch.zeros(num_words, num_words))

    def forward(self, source: Tensor, text: Tensor, named: Tensor) -> Tensor:
        """Logits of words in the label that is asked for, `(B, K, num_words)`.

        Args:
            source: `(B, K, num_words)`, 1 for the words of each label that the clip may show.
            text: `(B, size)`, the text's embedding.
            named: `(B, num_words)`, 1 for the words that the text has.
        """
        strengths = text.new_tensor(STRENGTHS) + STEP * self.strengths(text)
        start, if_named, if_shown, if_both = strengths[:, :, None].unbind(1)
        new = start + if_named * named + named @ self.company.T
        logits: Tensor = new[:, None] + (if_shown + if_both * named)[:, None] * source
        return logits


class FactoredCoVRForComposedRetrieval(TFCoVRForComposedRetrieval):
    """Composed video retrieval between distributions over labels, also over labels that nobody has trained on.

    A clip is embedded as the square roots of its probabilities of all labels, a query as the probabilities of the label
    that clip and text ask for, scaled to unit length: the product is 0 where they have no label in common, and a clip
    comes first that surely shows what the query surely asks for. Stage 1 gives a classifier of clips, whose classes
    share what their labels have in common; stage 2 trains that of queries by cross-entropy: it needs no negatives, and
    no batch of a certain size.

    A second classifier knows the words of labels alone, and so gives probabilities also to labels that are put together
    from these words (`compose_labels`). In a query the text edits the words of the labels that the clip may show.

    It finds what its labels describe; between clips of one label it does not tell apart.

    Example:
        >>> from transformers import BertConfig
        >>> from hf_models import AIMConfig
        >>> small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> vision = AIMConfig(image_size=8, patch_size=4, num_frames=4, temporal_pooling="gru", **small)
        >>> labels = {"id2label": {0: "leap", 1: "turn", 2: "leap with turn"}}
        >>> config = FactoredCoVRConfig(vision_config=vision, text_config=BertConfig(vocab_size=9, **small),
        ...                             label_factors=[["leap"], ["turn"], ["leap", "turn"]], **labels)
        >>> model = FactoredCoVRForComposedRetrieval(config).eval()
        >>> query = model.get_query_features(torch.rand(2, 4, 3, 8, 8), torch.tensor([[1, 2], [3, 4]]))
        >>> query.shape, query.norm(dim=1).allclose(torch.ones(2))
        (torch.Size([2, 3]), True)
    """

    config: FactoredCoVRConfig
    config_class = FactoredCoVRConfig
    base_model_prefix = "factored_covr"

    def __init__(self, config: FactoredCoVRConfig) -> None:
        super().__init__(config)
        size, labels = cast("int", config.fused_dim), (cast("int", config.num_trained_labels), config.label_factors)
        self.target_projection = nn.Identity()
        self.target_classifier = label_head(config.video_embed_dim, *labels)
        self.query_classifier = label_head(size, *labels)
        words = cast("list[list[str]]", config.label_words)
        self.word_classifier = cast("FactoredClassifier", label_head(config.video_embed_dim, len(words), words))
        self.word_edit = WordEdit(size, len(config.words))
        self.word_finder = WordFinder(config.word_tokens or [[] for _ in config.words])
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, FactoredClassifier):
            init.copy_(module.membership, module.make_membership())
        if isinstance(module, WordFinder):
            init.copy_(module.token_ids, module.ids())
            init.copy_(module.membership, module.make_membership())
        if isinstance(module, WordEdit):
            for weight in module.parameters():
                init.zeros_(weight)

    @classmethod
    def from_vision_text_pretrained(
        cls,
        vision_model_name_or_path: str | Path,
        text_model_name_or_path: str | Path,
        *,
        label_texts: Mapping[str, str] | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        composed_labels: bool = True,
        **config: Any,
    ) -> "FactoredCoVRForComposedRetrieval":
        """A model with the video encoder and the classifier of stage 1, a text encoder, and a fresh fusion.

        Args:
            vision_model_name_or_path: an `AIMForVideoClassification`, or a FactoredCoVR.
            text_model_name_or_path: a text model, or one that contains it.
            label_texts: the labels that are trained on, each with what it says; None: all labels of the video model,
                which are their own texts. Others are put together from their words.
            tokenizer: the text model's, by which words are found in texts; None: no word is looked for.
            composed_labels: put labels together that nobody has trained on. Where all clips show labels that are
                trained on, False is more exact, and its embeddings are smaller.
            **config: fields of `FactoredCoVRConfig`.

        Returns:
            The model in evaluation mode.

        Raises:
            ValueError: The video model has no classifier, or not for all labels, or an encoder's weights are not all
                there.
        """
        found = AutoConfig.from_pretrained(vision_model_name_or_path)
        sources: dict[str, type[PreTrainedModel]] = {
            "aim": AIMForVideoClassification,
            FactoredCoVRConfig.model_type: FactoredCoVRForComposedRetrieval,
        }
        if found.model_type not in sources or "AIMModel" in (found.architectures or ()):
            raise ValueError(
                f"{vision_model_name_or_path} is a {found.model_type!r} model without a classifier of labels; give the "
                "model that stage1.py wrote, or a FactoredCoVR"
            )
        known = list(found.id2label.values())[: getattr(found, "num_trained_labels", None)]
        given = dict(label_texts or zip(known, known, strict=True))
        texts = {label: given[label] for label in known if label in given}
        if unknown := sorted(given.keys() - texts.keys()):
            raise ValueError(
                f"{vision_model_name_or_path} has no class for {len(unknown)} of {len(given)} labels, such as "
                f"{unknown[0]!r}; train stage 1 on clips of these labels, too"
            )
        places = [known.index(label) for label in texts]
        words = [words_of_label(text) for text in texts.values()]
        names, label_words = list(texts), shared_words(words)
        sets = {frozenset(one) for one in label_words}
        vocabulary = {word for one in label_words for word in one}
        for label in compose_labels(words) if composed_labels else ():
            own = [word for word in dict.fromkeys(label) if word in vocabulary]
            if own and frozenset(own) not in sets:  # words tell nothing of their order
                names.append(" ".join(label))
                label_words.append(own)
                sets.add(frozenset(own))
        factors = found.label_factors and [found.label_factors[place] for place in places]
        numbers = {name: number for number, name in enumerate(names)}
        labels = {"id2label": dict(enumerate(names)), "label2id": numbers, "num_trained_labels": len(places)}
        in_order = dict.fromkeys(word for own in label_words for word in own)
        tokens = tokenizer and [tokenizer(f" {word}", add_special_tokens=False)["input_ids"] for word in in_order]
        config = {**labels, "label_factors": factors, "label_words": label_words, "word_tokens": tokens} | config
        model = super().from_vision_text_pretrained(vision_model_name_or_path, text_model_name_or_path, **config)
        loaded = sources[found.model_type].from_pretrained(vision_model_name_or_path, output_loading_info=True)
        trained, info = cast("tuple[Any, dict[str, Any]]", loaded)
        if lost := sorted(name for name in info["missing_keys"] if "classifier." in name):
            raise ValueError(
                f"{vision_model_name_or_path} does not hold the weights of its classifier of labels: {lost[:5]} are "
                "missing, which would leave it random; give the model that stage1.py wrote, or a FactoredCoVR"
            )
        theirs = trained.classifier if found.model_type == "aim" else trained.target_classifier
        ours = cast("Any", model.target_classifier)
        if isinstance(theirs, FactoredClassifier):
            places = [theirs.factors.index(factor) for factor in ours.factors]
        with torch.no_grad():
            for name in ("weight", "bias"):
                source, target = (getattr(getattr(part, "linear", part), name) for part in (theirs, ours))
                target.copy_(source[places])
        return cast("FactoredCoVRForComposedRetrieval", model)

    def freeze_encoders(self) -> None:
        """Leave only the text projection, the fusion and the classifiers of queries and words to train (stage 2)."""
        super().freeze_encoders()
        self.target_classifier.requires_grad_(False)
        self.word_classifier.requires_grad_(False)

    def fit_words(self, video_embeds: Tensor, labels: Tensor) -> None:
        """Fit the classifier of words to clips: stage 2 on stored embeddings, where no encoder changes.

        Args:
            video_embeds: `(N, video_embed_dim)`, of training clips.
            labels: `(N,)`, their labels' places in id2label.
        """
        classifier, clips = self.word_classifier, self._standardized(video_embeds)
        weights = [classifier.linear.weight, classifier.linear.bias]
        for weight in weights:
            weight.data.zero_()
        solver = torch.optim.LBFGS(weights, max_iter=100, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            solver.zero_grad()
            value = F.cross_entropy(classifier(clips), labels) + WORD_DECAY / 2 * weights[0].square().sum()
            value.backward()
            return value

        solver.step(loss)
        solver.zero_grad()

    def _run_text(self, input_ids: Tensor, attention_mask: Tensor | None, **options: Any) -> tuple[Tensor, ModelOutput]:
        embeds, outputs = super()._run_text(input_ids, attention_mask, **options)
        return torch.cat([embeds, self.word_finder(input_ids).to(embeds)], -1), outputs

    def _query_output(self, video: Tensor, text: Tensor, text_embeds: Tensor) -> RequestedLabels:
        label: Tensor = self.query_classifier(self.fusion(video, text))
        embeds = video * self.video_deviation + self.video_mean if self.config.standardize_video else video
        with torch.no_grad():  # what a clip shows is learned from clips alone; queries see it as it is
            shown = self._target_output(embeds).combined()
        odds, sources = shown.topk(min(SOURCES, shown.shape[1]))
        membership = self.word_classifier.membership.to(text)
        named = text_embeds[:, text_embeds.shape[1] - membership.shape[1] :].to(text)
        logits = (self.word_edit(membership[sources], text, named) @ membership.T).float()
        trained, composed = logits.split([label.shape[1], logits.shape[2] - label.shape[1]], -1)
        both = torch.cat([trained, composed + COMPOSED_BIAS], -1)
        odds = odds.log_softmax(-1)[..., None]
        words, taught = ((odds + part.log_softmax(-1)).logsumexp(1) for part in (both, trained))
        return RequestedLabels(label.float().log_softmax(-1), words, taught)

    def _target_output(self, video_embeds: Tensor) -> Shown:
        label: Tensor = self.target_classifier(self._in_own_dtype(video_embeds))
        words: Tensor = self.word_classifier(self._standardized(video_embeds))
        return Shown(label.float().log_softmax(-1), words.float().log_softmax(-1))

    def _embeds(self, output: RequestedLabels | Shown) -> Tensor:
        return output.embeds()

    # The loss reads log-probabilities: a probability's root is 0 in float32, without gradient, from 174.7 below 0 on.
    def _loss(self, query: RequestedLabels, target: Shown, target_labels: Tensor | None) -> Tensor:
        if target_labels is None:
            raise ValueError("FactoredCoVR learns from target_labels, the place of each target's label in id2label")
        taught = [query.label, query.trained]
        if self.word_classifier.linear.weight.requires_grad:
            taught.append(target.words)
        if any(weight.requires_grad for weight in self.target_classifier.parameters()):
            taught.append(target.label)
        if self.training:
            taught = [gather_with_gradient(part) for part in taught]
            target_labels = gather_with_gradient(target_labels)
        company = WORD_DECAY / 2 * self.word_edit.company.float().square().sum()
        return torch.stack([company, *(F.nll_loss(part, target_labels) for part in taught)]).sum()
