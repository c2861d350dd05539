"""Groups for people to annotate, and their annotations as gold."""
