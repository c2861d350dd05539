"""paddle-grrm: group relative reward modelling for machine translation on PaddlePaddle."""

__version__ = "0.1.0"
