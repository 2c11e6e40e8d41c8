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

from .composed_labels import compose_labels, shared_words, words_of
from .configuration_factored_covr import FactoredCoVRConfig
from .distributed_gather import gather_with_gradient
from .factored_classifier import FactoredClassifier
from .layers_aim import make_classifier
from .modeling_aim import AIMForVideoClassification
from .modeling_tfcovr import TFCoVRForComposedRetrieval

EVIDENCE = 8.0
"""What the logit of a word changes by where an edit's output is 1."""
WORD_DECAY = 1e-3
"""Half of the squared weights of words costs as much of their loss."""


class Experts(NamedTuple):
    """Log-probabilities of labels, `(B, num_trained_labels)` and `(B, num_labels)`.

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
    """What a modification text makes of the words that a clip shows: some stay, some come, as it says.

    Args:
        size: of a text's embedding.
        num_words: that labels have.
        hidden: units.
        dropout: its probability.
    """

    def __init__(self, size: int, num_words: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(size, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, 2 * num_words + 1)
        )
        self.num_words = num_words

    def forward(self, shown: Tensor, text: Tensor, named: Tensor) -> Tensor:
        """Logits of the words that a target shows, `(B, num_words)`.

        Args:
            shown: `(B, num_words)` logits of the words that the clip shows.
            text: `(B, size)`, the text's embedding.
            named: `(B, num_words)`, 1 for the words that the text has.
        """
        kept, added, trust = self.layers(text).split([self.num_words, self.num_words, 1], -1)
        edited: Tensor = shown * torch.sigmoid(kept + 2) + EVIDENCE * (added + (trust + 0.5) * named)
        return edited


class FactoredCoVRForComposedRetrieval(TFCoVRForComposedRetrieval):
    """Composed video retrieval between distributions over labels, also over labels that nobody has trained on.

    A clip is embedded as the square root of its probabilities of all labels, and a query as that of the label that
    clip and text ask for. Such vectors have unit length, and their product is the Bhattacharyya coefficient of the two
    distributions: 1 where they are equal, 0 where they have no label in common. Stage 1 gives a classifier of clips,
    whose classes share what their labels have in common; stage 2 trains that of queries by cross-entropy: it needs no
    negatives, and no batch of a certain size.

    A second pair of classifiers knows the words of labels alone, and so gives probabilities also to labels that are put
    together from these words (`compose_labels`). In a query the text edits the words that the clip shows.

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
        self.target_classifier = make_classifier(config.video_embed_dim, *labels)
        self.query_classifier = make_classifier(size, *labels)
        words = cast("list[list[str]]", config.label_words)
        self.word_classifier = cast("FactoredClassifier", make_classifier(config.video_embed_dim, len(words), words))
        num_words = len(config.words)
        self.word_edit = WordEdit(size, num_words, config.fusion_hidden_dim, config.fusion_dropout)
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

    @classmethod
    def from_vision_text_pretrained(
        cls,
        vision_model_name_or_path: str | Path,
        text_model_name_or_path: str | Path,
        *,
        label_texts: Mapping[str, str] | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        **config: Any,
    ) -> "FactoredCoVRForComposedRetrieval":
        """A model with the video encoder and the classifier of stage 1, a text encoder, and a fresh fusion.

        Args:
            vision_model_name_or_path: an `AIMForVideoClassification`, or a FactoredCoVR.
            text_model_name_or_path: a text model, or one that contains it.
            label_texts: the labels that are trained on, each with what it says; None: all labels of the video model,
                which are their own texts. Others are put together from their words.
            tokenizer: the text model's, by which words are found in texts; None: no word is looked for.
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
        words = [words_of(text) for text in texts.values()]
        names, label_words = list(texts), shared_words(words)
        sets = {frozenset(one) for one in label_words}
        vocabulary = {word for one in label_words for word in one}
        for label in compose_labels(words):
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

    def _query_output(self, video: Tensor, text: Tensor, text_embeds: Tensor) -> Experts:
        named = text_embeds[:, text_embeds.shape[1] - self.word_edit.num_words :].to(text)
        # What words a clip shows is learned from clips alone; queries see it as it is.
        shown = self.word_classifier.linear(video).detach()
        words = self.word_edit(shown, text, named) @ self.word_classifier.membership.T
        label: Tensor = self.query_classifier(self.fusion(video, text))
        return Experts(label.float().log_softmax(-1), words.float().log_softmax(-1))

    def _target_output(self, video_embeds: Tensor) -> Experts:
        label: Tensor = self.target_classifier(self._in_own_dtype(video_embeds))
        words: Tensor = self.word_classifier(self._standardized(video_embeds))
        return Experts(label.float().log_softmax(-1), words.float().log_softmax(-1))

    def _embeds(self, output: Experts) -> Tensor:
        return (output.combined() / 2).exp()

    # The loss reads log-probabilities: a probability's root is 0 in float32, without gradient, from 174.7 below 0 on.
    def _loss(self, query: Experts, target: Experts, target_labels: Tensor | None) -> Tensor:
        if target_labels is None:
            raise ValueError("FactoredCoVR learns from target_labels, the place of each target's label in id2label")
        taught = [*query]
        if self.word_classifier.linear.weight.requires_grad:
            taught.append(target.words)
        if any(weight.requires_grad for weight in self.target_classifier.parameters()):
            taught.append(target.label)
        if self.training:
            taught = [gather_with_gradient(part) for part in taught]
            target_labels = gather_with_gradient(target_labels)
        return torch.stack([F.nll_loss(part, target_labels) for part in taught]).sum()
