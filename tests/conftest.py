"""Set up this process, and through the environment those that tests start, as the entry scripts set up theirs."""

import os

from grrm.startup import configure_process

# Tests run side by side and start ranks of their own: one thread each, or they take turns on the same cores.
os.environ["OMP_NUM_THREADS"] = "1"
configure_process()
