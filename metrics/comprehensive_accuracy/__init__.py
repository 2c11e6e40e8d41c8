"""Accuracy per disruption type and their product."""
