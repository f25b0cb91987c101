"""What an accelerator does beyond what the CPU shows: its kernels, its allocator, its driver."""
