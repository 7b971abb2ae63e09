"""The commands by what they do: running.py makes something, reading.py looks at what was made, shards.py is about a stream, tokens.py
carries tokens to and from other formats, setup.py is for a first day."""
