"""Which chat model answers a recipe: a provider's, rules, a dry run, or answers that were kept."""

import os

from hf_datasets.generation.batch import OpenAIBatchChat
from hf_datasets.generation.chat import Chat
from hf_datasets.generation.dry_run import DryRun
from hf_datasets.generation.offline_chat import Replay, RuleBasedGenerator
from hf_datasets.generation.openai_chat import Limits, OpenAIChat, Sampling
from hf_datasets.generation.prices import Price, price_of
from subtle.run.shared_config import BuildConfig


def price_in(config: BuildConfig) -> Price | None:
    """The model's price, as given or as listed; None where neither is known."""
    if config.input_usd is not None and config.output_usd is not None:
        return Price(str(config.model), config.input_usd, config.output_usd)
    return price_of(str(config.model), batch=config.batch)


def open_chat(config: BuildConfig) -> Chat:
    """The client that the configuration asks for."""
    sampling = Sampling(config.temperature, config.max_output_tokens)
    if config.model is None:
        return RuleBasedGenerator()
    if config.dry_run:
        return DryRun(config.model, sampling, price=price_in(config), max_answers=config.max_answers)
    if config.offline:
        return Replay(config.model, sampling.options())
    limits = Limits(
        max_concurrency=config.max_concurrency,
        requests_per_minute=config.requests_per_minute,
        max_usd=config.max_usd,
        timeout_seconds=config.timeout_seconds,
    )
    client = OpenAIBatchChat if config.batch else OpenAIChat
    return client(
        config.model,
        base_url=config.base_url,
        api_key=os.environ.get(config.api_key_env),
        sampling=sampling,
        limits=limits,
        price=price_in(config),
    )
