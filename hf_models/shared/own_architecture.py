"""Configurations that read no other architecture's."""

from typing import Any, ClassVar, Self


class OwnArchitecture:
    """Makes a configuration, of which it is the first base class, refuse another architecture's `config.json`.

    The weights of the model would be left at random, with a warning.

    Attributes:
        how_to_make: What makes a model of this architecture, for the error.
        checked_together: Fields that transformers checks while it reads, before it sets those that are given.
    """

    model_type: ClassVar[str]
    how_to_make: ClassVar[str]
    checked_together: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Self:
        """Read a configuration.

        Args:
            config_dict: The contents of `config.json`.
            **kwargs: Fields that replace those read.

        Raises:
            ValueError: It describes another architecture.
        """
        found = config_dict.get("model_type", cls.model_type)
        if found != cls.model_type:
            raise ValueError(f"this is a {found!r} configuration, not a {cls.model_type!r} one; {cls.how_to_make}")
        given = {name: kwargs[name] for name in cls.checked_together if name in kwargs}
        config: Self = super().from_dict(config_dict | given, **kwargs)  # type: ignore[misc]  # of the next base class
        return config
