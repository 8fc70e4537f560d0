"""One gatherer a module: each measures one kind of evidence through the lab, and knows nothing of checks."""
