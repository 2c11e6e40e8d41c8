"""What `hf_datasets.publish` writes: Parquet shards, the card, metadata for other tools, the code beside the data."""
