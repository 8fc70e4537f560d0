"""Changes that are tried on a running model: what a check proposes as a trial, and disturbances that gatherers need."""
