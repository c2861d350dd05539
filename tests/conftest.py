"""Set up this process, and through what they inherit those that tests start, as the entry scripts set up theirs."""

import os
import signal

from grrm import startup

# Tests run side by side and start ranks of their own: one thread each, or they take turns on the same cores.
os.environ["OMP_NUM_THREADS"] = "1"
startup.flush_denormals = lambda: False  # not in this process, where property tests draw such numbers
startup.configure_process()

# What a shell starts in the background ignores Ctrl-C, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
