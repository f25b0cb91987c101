"""The largest batch, sequence or depth that fits a card under each policy: predicted, none measured."""
