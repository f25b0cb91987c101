"""What the records say: statistics, figures and the report. Reads records only; never imports torch."""
