"""Ranking and translating with trained models."""
