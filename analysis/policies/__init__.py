"""``python -m analysis policies``: what every policy would keep and cost, from formulas alone."""
