"""Programs that run in environments of their own, by their path; they import nothing of this package."""
