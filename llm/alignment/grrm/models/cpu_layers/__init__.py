"""Faster CPU forms of PaddleNLP layers, equal to the originals up to float rounding.

Facts of Paddle's CPU back end shape them. An elementwise operator on operands of equal shape is 5 to 30 times faster
than one that broadcasts, so operands are expanded first. Sums over an axis and outer products are cheapest as matrix
products with a vector. `softmax` is four times slower than the exponential in it.

The gradients of `tile`, `concat` and slices cost more than the arithmetic around them. So these forms have their own
backward passes, in the operators that are fast; the C++ kernels of csrc replace them where they could be compiled.
"""

from __future__ import annotations

from grrm.models.cpu_layers.install import require_kernels, takes_ranges, use_cpu_layers

__all__ = ["require_kernels", "takes_ranges", "use_cpu_layers"]
