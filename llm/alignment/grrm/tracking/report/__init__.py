"""Static HTML reports: the page of a run or of several, and what the demo's page shares with it."""
