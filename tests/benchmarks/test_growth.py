"""Growth curves: the bound is what it says, and a picture comes out."""

from __future__ import annotations

from types import SimpleNamespace

import pytest


def test_sizes_are_those_of_the_layers(growth):
    config = SimpleNamespace(
        hidden_size=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=16,
        num_hidden_layers=3,
        vocab_size=50,
    )
    # Per layer: queries and output 8 x 8, keys and values 8 x 4, three products of 8 x 16.
    assert growth.sizes_of(config) == growth.Model(3 * (2 * 64 + 2 * 32 + 3 * 128), 400, 2 * 3 * 4)


def test_a_step_takes_its_products_or_its_reading_whichever_is_longer(growth):
    model, point = growth.Model(body=100, head=20, cached=2), growth.Point(batch=2, prompt=5, new=3, samples=2)
    prefill = 2 * (2 * 5 * 100 + 2 * 20)
    products = 2 * (2 * 120 * 4)  # two steps of four sequences
    reading = sum(4 * (120 + (2 * 5 + 4 * drawn) * 2) for drawn in (1, 2))  # a prompt's keys once for its samples
    fast_memory, slow_memory = growth.Machine(flops=1.0, bytes=1e9), growth.Machine(flops=1e9, bytes=1.0)
    assert growth.bound_seconds(point, model, fast_memory) == pytest.approx(prefill + products)
    assert growth.bound_seconds(point, model, slow_memory) == pytest.approx(reading, rel=1e-6)


def test_a_picture_is_drawn(growth, tmp_path):
    rows = [
        {"axis": axis, "value": 2.0**step, "tokens_per_s": 10.0, "bound_tokens_per_s": 20.0, "cache_mb": 1.0}
        for axis in growth.AXES
        for step in range(3)
    ]
    growth.draw({"rows": rows}, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
