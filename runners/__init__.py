"""WHERE and WHEN cells run: the fork server, the order of rounds, the children and their supervision.

Nothing here but what runs inside the fork server (:mod:`runners.preload`) and its children
(:mod:`runners.child`, :mod:`runners.isolate`) ever imports torch.
"""
