"""Programs that run in processes of their own, by their path; they import nothing of this package."""
