"""Run folders: what a run is, training into one, resuming, and models as folders."""
