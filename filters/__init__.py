"""Filters: measures computed in one pass over a text, rules that put cuts on them, language, URL lists, redaction."""
