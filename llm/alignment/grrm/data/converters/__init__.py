"""Training files for the judge and the policy: the same columns and, for the same seed, the same rows as the original.

Every converter reads a file whole, leaves out rows that cannot be used (each one reported with its number),
and writes a shuffled file in one atomic step: parquet, or PaddleNLP's `src`/`tgt` lines if it is named `.jsonl`.

The shuffle is over the whole file, so the columns that are read are held once in memory; what is built from them exists
only for one batch of rows at a time.
"""
