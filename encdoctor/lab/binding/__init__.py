"""Finds out how an encoder is called; `bind.bind` is the way in."""
