"""Commands of the data pipeline."""
