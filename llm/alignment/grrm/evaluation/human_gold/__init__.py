"""A judge's card: its scores of several systems' translations against people's, beside baselines and sentinels."""
