"""Parts of `tune.py`: whether there is enough, what it will take, and what it was worth."""
