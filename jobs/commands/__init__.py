"""The commands by what they do: running.py makes something, reading.py looks at what was made, setup.py is for a first day."""
