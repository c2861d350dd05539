"""Training files for the judge and the policy: the same columns and, for the same seed, the same rows as the original.

Every converter reads a parquet file whole, leaves out rows that cannot be used (each one reported with its number),
and writes a shuffled parquet file in one atomic step. The shuffle is over the whole file, so the columns that are
read are held once in memory; what is built from them exists only for one batch of rows at a time.
"""
