"""A language in which every text stands in brackets, so that one which nobody can translate shows."""
