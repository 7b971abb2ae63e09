"""Documents, recipes, the ledger and the engine: what every other room stands on."""
