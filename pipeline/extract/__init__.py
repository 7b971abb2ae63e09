"""Crawls and dumps to documents: WARC, WET, JSON Lines and Parquet in, one row a page out.

operation   the stage: units, ranges that must meet, counts
formats     what a file is          framing, warc   records, with every lost byte named
crawl, jsonl, parquet               the readers
page        one page to text: http, charset, limits, html, in this order
guard       the child process that extracts, and what its death means
"""
