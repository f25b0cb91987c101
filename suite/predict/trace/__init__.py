"""The real model, run under FakeTensor: every allocation and every operator of a step, nothing computed."""
