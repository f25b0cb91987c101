"""One rank's share of a step that is spread over devices: which model it runs, and what it holds."""
