"""Makes the helpers beside it importable from every test."""

import torch

# The machines that run these tests share their cores; one thread also makes every sum repeatable.
torch.set_num_threads(1)
