"""CPU kernels in C++ without Paddle, compiled on first use, and the BLAS they are given."""
