"""What an accelerator does that a trace on the CPU does not show: its kernels, its allocator, its driver."""
