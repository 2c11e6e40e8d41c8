"""The LLM step that the three pipelines share."""
