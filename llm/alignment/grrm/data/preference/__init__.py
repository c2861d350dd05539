"""The preference pipeline (EAX): seed data by language pair, cleaned samples, preference pairs, instruction data."""
