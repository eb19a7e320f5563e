"""What is computed from tables of entries; every function takes and returns DataFrames."""
