"""Exact and near duplicates: signatures, bands, verified candidates, survivors; `dedup.stage.Dedup` is the recipe's entry."""
