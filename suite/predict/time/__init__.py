"""How long a traced step takes, from a few rates of the device or from its operators, measured."""
