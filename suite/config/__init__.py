"""Configuration: its typed shape, and the way from Hydra to it."""
