"""Measuring trained models, judging by chat models, and reports."""
