"""The engine: stages, units, commits, manifests and the runners that execute them."""
