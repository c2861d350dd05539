"""One client for every server: retries within a deadline, pools, TLS, bearer tokens, and causes in one sentence."""
