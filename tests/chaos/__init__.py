"""Runs that are broken on purpose, by a seed: whatever breaks, the same command must finish with the bytes of an undisturbed run.

PYTHONPATH=tests python -m chaos --rounds 20 --seed 1 [--ray 3] [--only ROUND] [--json FILE]

processes.py   a run in a process of its own, its events, its workers and their guards
ground.py      crawl, recipe and undisturbed run that all rounds are compared with
kills.py       rounds that kill or stop processes;  damage.py  files cut, flipped, deleted between runs
disks.py       full and read-only disks, limits;  stores.py  an object store that fails or is slow;  surroundings.py  other locale, clock, folder
hostile.py     pages that crash, hang and bloat whoever works on them (hook/ makes them do it)
nodes.py       the same on Ray;  rounds.py  who is played when, and the judgement;  __main__.py  the table
"""
