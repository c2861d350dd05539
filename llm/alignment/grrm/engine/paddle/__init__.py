"""Our engine: continuous batching over a KV cache, on CPU kernels, on fused GPU operators or on plain Paddle."""
