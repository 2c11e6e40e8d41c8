"""Fine-tuning of vision-language models: what is trained on, models and adapters, costs, what is published."""
