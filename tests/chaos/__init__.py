"""Runs that are broken on purpose, by a seed: whatever breaks, the same command must finish with the bytes of an undisturbed run.

PYTHONPATH=tests python -m chaos --rounds 20 --seed 1 [--ray 3] [--only ROUND]

processes.py   a run in a process of its own, its events, its workers and their guards
ground.py      crawl, recipe and undisturbed run that all rounds are compared with
kills.py       rounds that kill or stop processes;  disks.py  full disks;  damage.py  files cut, flipped, deleted between runs
nodes.py       the same on Ray;  rounds.py  who is played when, and the judgement;  __main__.py  the table
"""
