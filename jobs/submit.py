"""`corpusmill submit`: a run as a Ray job. The driver works on the cluster, so this machine may go to sleep.

The job's command is `PYTHON -m corpusmill.jobs.cli run RECIPE ... --ray auto`, in the folder of the call where the head sees
it. A recipe file travels in a working_dir that holds nothing else; OUT and the inputs lie on storage that all nodes mount.
Nothing durable is in the job: submitted again after its driver died, the run goes on from what OUT holds.
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import logging
import os
import shlex
import shutil
import ssl
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from corpusmill import __version__
from corpusmill.jobs.commands.arguments import need_share
from corpusmill.jobs.following import follow, next_steps, outcome
from corpusmill.pipeline.errors import RecipeError, RunError
from corpusmill.pipeline.remote import redacted, scheme_of, surroundings

ANSWER_S = 10.0
"""How long a cluster's dashboard may take to say its version: Ray's own client waits for ever."""

CHECK = """
import sys
wanted = sys.argv[1]
try:
    import corpusmill
except ImportError:
    sys.exit(f"corpusmill: not installed for {sys.executable} on the cluster; install {wanted} there, name another --python, or --ship it")
if corpusmill.__version__ != wanted:
    sys.exit(f"corpusmill: the cluster has version {corpusmill.__version__}, the job was submitted by {wanted}: make them equal, or --ship")
"""
"""Run before the driver, by any version: an option that an old one does not know would be a worse message."""


def add_options(submit: argparse.ArgumentParser) -> None:
    """What `submit` takes beyond the options of a run."""
    submit.add_argument(
        "--address", required=True, metavar="URL", help="the cluster's dashboard, like http://127.0.0.1:8265"
    )
    submit.add_argument(
        "--detach", action="store_true", help="print the job's id and leave, without following it"
    )
    submit.add_argument(
        "--ship", action="store_true", help="take the code of this checkout along, instead of the cluster's"
    )
    submit.add_argument(
        "--python",
        metavar="PATH",
        help="the interpreter on the cluster (default: python; this one when the address is this machine's)",
    )


def command_submit(options: argparse.Namespace) -> int:
    """Exit codes: 0 the job succeeded (with --detach: was accepted), 1 or 2 as the run gave them, 130 no longer followed."""
    from corpusmill.pipeline.recipe import load_recipe

    load_recipe(options.recipe)  # what cannot be run is refused before anything travels
    need_share(options.sample)
    address = checked_address(options.address)
    need_token()
    need_answer(address)
    need_no_secrets(options)
    with tempfile.TemporaryDirectory(prefix="corpusmill-submit-") as folder:
        environment = runtime_environment(options, Path(folder))
        with errors_said(address):
            client = connect(address)
            job = client.submit_job(
                entrypoint=entrypoint(options, address),
                runtime_env=environment,
                metadata={"corpusmill": __version__, "out": absolute(options.out)},
            )
    if options.detach:
        print(job)
        print(f"corpusmill: submitted; {next_steps(address, job)}", file=sys.stderr)
        return 0
    print(f"corpusmill: submitted as {job}", file=sys.stderr)
    try:
        with errors_said(address):
            return outcome(follow(client, address, job), address, job)
    except KeyboardInterrupt:
        print(f"corpusmill: the job goes on without us; {next_steps(address, job)}", file=sys.stderr)
        return 130


def need_no_secrets(options: argparse.Namespace) -> None:
    """What becomes the job's command and its metadata is shown by the dashboard to whoever may look: no password of an address, no signed query,
    no value of a secret of this environment, is let through. Nothing of this environment itself travels."""
    for text in (*run_options(options), options.recipe, options.python or "", *surroundings().values()):
        if redacted(text) != text:
            raise RecipeError(
                f"{redacted(text)}: this would be shown in the cluster's dashboard; "
                "name the address without credentials, and give them to the nodes (roles, their environment, ~/.aws)"
            )


def checked_address(address: str) -> str:
    """The dashboard's URL; HOST:PORT stands for http. RecipeError for what is none."""
    url = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise RecipeError(
            f"--address {address}: the URL of a cluster's dashboard is needed, like http://127.0.0.1:8265"
        )
    if parts.username is not None:
        raise RecipeError("--address: no name and password in it, it reaches logs; Ray takes a token")
    return url.rstrip("/")


def on_this_machine(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def need_token() -> None:
    """Ray ends the process with a stack trace when a token was promised and is not there."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() != "token" or os.environ.get("RAY_AUTH_TOKEN"):
        return
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        empty = not path.read_bytes().strip()
    except OSError as error:
        raise RunError(
            f"RAY_AUTH_MODE is token, but {path} cannot be read ({error.strerror}): "
            "set RAY_AUTH_TOKEN_PATH to a file with the cluster's token"
        ) from None
    if empty:
        raise RunError(
            f"RAY_AUTH_MODE is token, but {path} is empty: set RAY_AUTH_TOKEN_PATH to a file with the cluster's token"
        )


def need_answer(address: str) -> None:
    """One question with a deadline; whether the answer is a good one is for Ray's client to say."""
    try:
        urllib.request.urlopen(f"{address}/api/version", timeout=ANSWER_S).close()
    except urllib.error.HTTPError:
        return
    except OSError as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLError):
            return  # Ray's client may know the certificate (REQUESTS_CA_BUNDLE)
        raise no_answer(address, getattr(reason, "strerror", None) or str(reason)) from None
    except ValueError as error:  # something answers, but not in HTTP
        raise no_answer(address, str(error)) from None


def no_answer(address: str, why: str) -> RunError:
    return RunError(
        f"no Ray cluster answers at {address}: {why}; "
        "give the URL of its dashboard (`ray start --head` prints it), or open a tunnel to it"
    )


@contextlib.contextmanager
def errors_said(address: str) -> Iterator[None]:
    """Ray's errors as one line each; never the token."""
    from ray.exceptions import AuthenticationError

    try:
        yield
    except AuthenticationError as error:
        raise RunError(token_advice(address, none_sent="required" in str(error))) from None
    except (OSError, RuntimeError, ValueError) as error:
        raise RunError(f"{address}: {' '.join(str(error).split())[:500]}") from None


def token_advice(address: str, none_sent: bool) -> str:
    """What to set; the token itself is never read here."""
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if none_sent:
        mode_is_set = os.environ.get("RAY_AUTH_MODE", "").lower() == "token"
        missing = [
            *([] if mode_is_set else ["RAY_AUTH_MODE=token"]),
            *([] if path else ["RAY_AUTH_TOKEN_PATH=FILE"]),
        ]
        return f"{address} wants a token: set {' and '.join(missing)}; the file holds the cluster's token"
    origin = "RAY_AUTH_TOKEN" if os.environ.get("RAY_AUTH_TOKEN") else path or "~/.ray/auth_token"
    return f"{address} has another token than {origin}: set RAY_AUTH_TOKEN_PATH to a file with that cluster's"


def connect(address: str) -> Any:
    """Ray's client for this very address: RAY_ADDRESS would otherwise win over what the user wrote."""
    from ray.job_submission import JobSubmissionClient

    for name in ("ray.dashboard.modules.job.sdk", "ray.dashboard.modules.dashboard_sdk"):
        logging.getLogger(name).setLevel(logging.WARNING)
    others = {
        name: os.environ.pop(name) for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS") if name in os.environ
    }
    try:
        return JobSubmissionClient(address)
    finally:
        os.environ.update(others)


def runtime_environment(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """What travels: a recipe file alone in its folder, with --ship the package, and where stores are (no credentials: all can read this)."""
    environment: dict[str, Any] = {"env_vars": where} if (where := surroundings()) else {}
    recipe = Path(options.recipe)
    if recipe.is_file():
        (folder / "recipe").mkdir()
        shutil.copyfile(recipe, folder / "recipe" / "recipe.yaml")
        environment["working_dir"] = str(folder / "recipe")
    if options.ship:
        from corpusmill.jobs.ship import packed_checkout

        environment["py_modules"] = [str(packed_checkout(folder))]
    return environment


def entrypoint(options: argparse.Namespace, address: str) -> str:
    """The job's shell command: check the version there, go to the folder of the call if it is there, become the driver."""
    python = shlex.quote(options.python or (sys.executable if on_this_machine(address) else "python"))
    recipe = '"$sent/recipe.yaml"' if Path(options.recipe).is_file() else shlex.quote(options.recipe)
    here = shlex.quote(str(Path.cwd()))
    lost = "corpusmill: this folder of the call is not on the head, relative paths will not be found: "
    run = " ".join(map(shlex.quote, run_options(options)))
    return (
        f"sent=$PWD; {python} -c {shlex.quote(CHECK)} {__version__} || exit 1; "
        f"cd {here} 2>/dev/null || echo {shlex.quote(lost)}{here} >&2; "
        f"exec {python} -m corpusmill.jobs.cli run {recipe} {run} --ray auto"
    )


def absolute(out: str) -> str:
    """OUT by its whole path; the address of a store is that already."""
    return out if scheme_of(out) else str(Path(out).absolute())


def run_options(options: argparse.Namespace) -> list[str]:
    """The options of `corpusmill run` that were given; OUT always absolute, so that it cannot fall into a job's own folder."""
    words = ["--out", absolute(options.out)]
    for path in options.input:
        words += ["--input", path]
    for name in ("workers", "sample", "limit"):
        if getattr(options, name) is not None:
            words += [f"--{name}", str(getattr(options, name))]
    for text in options.resources:
        words += ["--resources", text]
    return [*words, "--update"] if options.update else words
