"""One thread for the numbers of every test: their tensors are small, and threads that wait for each other are slow."""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before torch is imported, and for the processes that tests start
