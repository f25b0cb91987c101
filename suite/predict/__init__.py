"""What can be said of a cell before it runs. Torch-free."""
