"""Suites: encoders judged on what isn't their own corpus, before and after."""
