"""Groups for a judge to learn from: sampled translations with gold scores and an analysis that leads to them."""
