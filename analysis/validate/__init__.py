"""``python -m analysis validate``: a predictor of memory and time, held against published measurements."""
