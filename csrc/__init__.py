"""CPU kernels in C++ that know nothing of Paddle, compiled on first use, and their functions for `ctypes`."""
