"""Facts about one model, as frozen plain data. Checks are given these and nothing else; no torch here."""
