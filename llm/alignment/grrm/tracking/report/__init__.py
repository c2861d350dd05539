"""Reports as HTML files: the page of a run or of several, and what the page of the demo shares with it."""
