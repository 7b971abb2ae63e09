"""The command line: `main` finds the command (commands/) and words what went wrong. Thresholds are the recipe's, never options.

argparse and late imports: commands about shards (show, verify, locate, where, quarantine, plan) work on a core install; the others end with the exact
pip line when the `pipeline` extra is missing.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import errno
import io
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence

from corpusmill import __version__
from corpusmill.jobs.commands import ablate, mixing, reading, running, setup, shards, tokens
from corpusmill.pipeline.errors import CorpusmillError
from corpusmill.pipeline.remote import BUCKETS, redacted

STEPS = {
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room, or have the quota raised",
    errno.EROFS: "mount the disk for writing",
    errno.EMFILE: "allow a process more open files (ulimit -n)",
    errno.ENFILE: "the machine has too many open files; close some",
}
"""What the user can do about an error of the system."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 a run that failed or damage found, 2 a wrong call, recipe, input or model, 130 interrupted."""
    options = parser().parse_args(mixing.joined(sys.argv[1:] if arguments is None else arguments))
    _any_letter()
    logging.basicConfig(level=logging.WARNING, format="warning: %(message)s", stream=sys.stderr)
    try:
        with _pulses(options):
            code: int = options.command(options)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except CorpusmillError as error:
        print(f"corpusmill: {_plain(redacted(str(error)))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("corpusmill: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # `corpusmill show ... | head`; a run that ends because nobody listens is not done.
        _no_more_output()
        return 0 if options.command in (*reading.PIPED, *shards.PIPED) else 1
    except OSError as error:  # a full disk, a folder that may not be read or written
        where = f"{error.filename}: " if error.filename else ""
        step = STEPS.get(error.errno or 0)
        step = f": {step}, and give the same command again" if step else ""
        print(_plain(f"corpusmill: {where}{redacted(str(error.strerror or error))}{step}"), file=sys.stderr)
        return 1


@contextlib.contextmanager
def _pulses(options: argparse.Namespace) -> Iterator[None]:
    """A store that a command reads or exports to and that does not answer is said to do so; runs say it themselves."""
    names = ("path", "to", "out") if hasattr(options, "to") else ("path",)
    named = {str(getattr(options, name, "")) for name in names}
    with contextlib.ExitStack() as stack:
        for address in sorted(each for each in named if each.startswith(tuple(f"{it}://" for it in BUCKETS))):
            from corpusmill.pipeline.engine.place import place_of
            from corpusmill.pipeline.engine.pulse import Pulse

            stack.enter_context(Pulse(place_of(address), logging.getLogger("corpusmill").warning))
        yield


def _plain(text: str) -> str:
    """Nothing that a terminal would obey: names of components, files and documents come from data."""
    return "".join(ch if ch.isprintable() or ch in "\n\t" else "\N{REPLACEMENT CHARACTER}" for ch in text)


def _any_letter() -> None:
    """What a terminal or pipe of another encoding cannot take is written as JSON escapes it, instead of ending the command."""
    codecs.register_error("corpusmill", _escaped)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="corpusmill")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _no_more_output() -> None:
    """What is still buffered goes nowhere, so that the interpreter does not stumble over the closed pipe at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="corpusmill", description="Raw web crawls in; verified, shuffled, resumable token shards out."
    )
    top.add_argument("--version", action="version", version=f"corpusmill {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for group in (running, mixing, ablate, reading, shards, tokens, setup):
        group.add(commands)
    return top


if __name__ == "__main__":
    sys.exit(main())
