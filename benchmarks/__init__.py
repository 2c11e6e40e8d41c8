"""One module per benchmark; each has `measure() -> Iterator[Ratio]`."""
