"""Topics by host: the domains with the most documents are topics of their own, all others are told by their top-level domain.

topics.fit   the domains, as hosts.json: one unit, addresses of partitions in keyed order
topics       the topic of every kept document

A domain is what somebody registered: `docs.python.org` is of `python.org`, `a.b.co.uk` of `b.co.uk`, by the public suffixes that the library
`tld` carries (nothing is fetched; its version enters the fingerprint). Pages of a platform are one domain (`github.io`). Which topic a document has
depends on its address and the list of domains alone, so names mean the same in every run; only which domains are listed differs.
Costs 13 us for a host that was not seen lately, next to nothing else.
"""

from __future__ import annotations

import ipaddress
import json
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import pyarrow as pa

from corpusmill.filters.topics import COLUMN, READ_FACTOR, by_partition, keyed_order
from corpusmill.filters.url import host
from corpusmill.pipeline.engine.stage import Inputs, Result, SetOperation, TaskIO, Unit

HOSTS_FILE = "hosts.json"

NONE = "none"
"""Of a document without an address, or with one that names no host."""

ADDRESS = "other-address"
"""Of hosts that are numbers."""

LIBRARY = "tld"


@dataclass(frozen=True)
class FitHosts(SetOperation):
    """One unit: addresses of a few partitions say which domains are large."""

    seed: int
    count: int
    sample: int

    libraries: ClassVar[tuple[str, ...]] = (LIBRARY,)
    rate: ClassVar[float] = 10e6

    def units(self, inputs: Inputs) -> list[Unit]:
        return keyed_order(inputs, self.seed, self.sample)

    def run(self, unit: Unit, io: TaskIO) -> Result:
        found: Counter[str] = Counter()
        for part in unit.fields["order"]:
            for _, rows in io.rows(part, ["url"], kept=True):
                found.update(domain for url in rows["url"].to_pylist() if (domain := domain_of(url)))
            if found.total() > READ_FACTOR * self.sample:
                break
        largest = sorted(found.items(), key=lambda item: (-item[1], item[0]))[: self.count]
        said = {"domains": [{"domain": name, "documents": count} for name, count in largest]}
        io.write_bytes(HOSTS_FILE, json.dumps(said, indent=1).encode())
        return io.result(
            rows=found.total(),
            counts={"documents": found.total(), "domains": len(found), "topics": len(largest)},
        )


@dataclass(frozen=True)
class AssignHosts(SetOperation):
    """A row a document: its topic by its address, null where it is not kept. One partition a unit."""

    fit: str

    libraries: ClassVar[tuple[str, ...]] = (LIBRARY,)
    rate: ClassVar[float] = 30e6

    def schema(self) -> pa.Schema:
        about = "domain of the address, or other-<top-level domain>; null where the row was not kept so far"
        return pa.schema([pa.field(COLUMN, pa.string(), metadata={"about": about})])

    def units(self, inputs: Inputs) -> list[Unit]:
        return by_partition(inputs)

    def run(self, unit: Unit, io: TaskIO) -> Result:
        listed = json.loads(io.read_bytes(self.fit, HOSTS_FILE))["domains"]
        domains = frozenset(each["domain"] for each in listed)
        (part,) = unit.parts
        found = np.full(len(io.documents(part, ["source"])), None, object)
        assigned = 0
        for numbers, rows in io.rows(part, ["url"], kept=True):
            found[numbers] = [topic_of(url, domains) for url in rows["url"].to_pylist()]
            assigned += len(numbers)
        io.write_layer(part, pa.table([pa.array(found, pa.string())], schema=self.schema()))
        return io.result(rows=len(found), counts={"assigned": assigned})


def topic_of(url: str | None, domains: frozenset[str]) -> str:
    """The address's domain where it is one of `domains`, else `other-` and its top-level domain."""
    domain = domain_of(url)
    if domain in domains or not domain:
        return domain or NONE
    return ADDRESS if is_number(domain) else f"other-{domain.rpartition('.')[2]}"


def domain_of(url: str | None) -> str:
    """What somebody registered of the address's host; a host that is a number as it stands; "" without a host."""
    return "" if not url else _registered(host(url))


@lru_cache(maxsize=1 << 16)
def _registered(name: str) -> str:
    from tld import get_fld

    if not name or is_number(name):
        return name
    known = get_fld(f"http://{name}/", fail_silently=True, search_private=False)
    # Where no public suffix is known the last label counts as one, as the list's own rule is.
    return str(known) if known else ".".join([label for label in name.split(".") if label][-2:])


def is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
