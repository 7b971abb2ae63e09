"""What is seen of a submitted job: its log as it grows, how it ended, and how to go on from another terminal."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from corpusmill.pipeline.errors import RunError
from corpusmill.pipeline.remote import redacted

LOST_TRIES = 5
"""Times in a row that following may fail, 2 s apart, before we say so: a dashboard that restarts takes a few seconds."""


def follow(client: Any, address: str, job: str) -> Any:
    """Print what the job prints until it ends; a connection that breaks is made again. Returns Ray's details of the job."""
    from aiohttp import ClientError

    shown, lost = [0], 0
    while True:
        try:
            asyncio.run(_print_from(client, job, shown))
            details = client.get_job_info(job)
            lost = 0
        except (OSError, RuntimeError, ClientError) as error:
            lost += 1
            if lost == LOST_TRIES:
                raise RunError(
                    f"{address} no longer answers ({type(error).__name__}); if it lives, the job goes on there; "
                    f"{next_steps(address, job)}"
                ) from None
            time.sleep(2)
            continue
        if details.status.is_terminal():
            return details
        time.sleep(1)


async def _print_from(client: Any, job: str, shown: list[int]) -> None:
    """Ray tells the log from its beginning each time: `shown` counts the characters that were printed already."""
    seen = 0
    async for text in client.tail_job_logs(job):
        fresh = text[max(0, shown[0] - seen) :]
        seen += len(text)
        if fresh:
            shown[0] = seen
            print(redacted(fresh), end="", flush=True)


def outcome(details: Any, address: str, job: str) -> int:
    """The run's own exit code where it has one."""
    status = str(getattr(details.status, "value", details.status))
    if status == "SUCCEEDED":
        return 0
    code = getattr(details, "driver_exit_code", None)
    why = " ".join(str(details.message or "").split())[:300]
    ended = "was stopped" if status == "STOPPED" else "failed"
    print(
        f"corpusmill: job {job} {ended}{f': {why}' if why and code not in (1, 2) else ''}; the same command goes on from here",
        file=sys.stderr,
    )
    return 2 if code == 2 else 1


def next_steps(address: str, job: str) -> str:
    return (
        f"follow it: ray job logs --address {address} --follow {job}; how it stands: ray job status --address {address} {job}; "
        f"stop it: ray job stop --address {address} {job}"
    )
