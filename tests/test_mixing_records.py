"""Run records: back as they were written, the same bytes in any order, one proxy at a time; CSV with its mistakes named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from corpusmill.mixing.imported import import_runs
from corpusmill.mixing.records import (
    Record,
    bits_per_byte,
    decode_records,
    encode_records,
    read_records,
    swarm_of,
)
from corpusmill.pipeline.errors import InputError

PPB = 10**9


def record(run: str, target: str, web: int, **values: object) -> Record:
    given: dict[str, object] = {"bits_per_byte": 1.5, "loss": 3.0, "proxy": "p1", **values}
    return Record(run, target, ("web", "books"), (web, PPB - web), **given)  # type: ignore[arg-type]


def test_records_come_back_as_they_were() -> None:
    bits = np.array([10.5, 3.25, 7.0])
    sizes = np.array([12, 3, 9], np.int64)
    one = record(
        "r1",
        "prose",
        PPB // 4,
        seed=3,
        realised_tokens=(256, 768),
        eval_tokens=10,
        eval_bytes=24,
        document_bits=bits,
        document_bytes=sizes,
        bits_per_byte=bits_per_byte(bits, sizes),
        flops=6e15,
    )
    two = record("r1", "code", PPB // 4, bits_per_byte=None)
    back = {found.target: found for found in decode_records(encode_records([one, two]), "here")}
    for made in (one, two):
        found = back[made.target]
        for name, value in vars(made).items():
            assert np.array_equal(getattr(found, name), value), name
    assert back["prose"].bits_per_byte == 20.75 / 24


def test_bytes_do_not_depend_on_the_order_of_records() -> None:
    records = [record(f"r{number}", target, 10 * number) for number in range(5) for target in "ab"]
    assert encode_records(records) == encode_records(records[::-1])


def test_a_swarm_takes_realised_shares_and_groups_by_what_was_asked(tmp_path: Path) -> None:
    path = tmp_path / "records.parquet"
    path.write_bytes(
        encode_records(
            [
                record("b", "prose", PPB // 4, seed=1, realised_tokens=(30, 70)),
                record("a", "prose", PPB // 4, seed=0, realised_tokens=(20, 80), bits_per_byte=1.7),
                record("c", "prose", PPB // 2),
                record("c", "code", PPB // 2, bits_per_byte=0.9),
            ]
        )
    )
    swarm = swarm_of(read_records(path))
    assert swarm.components == ("web", "books") and swarm.targets == ("code", "prose")
    assert swarm.weights.tolist() == [[0.2, 0.8], [0.3, 0.7], [0.5, 0.5]]
    assert swarm.groups.tolist() == [0, 0, 1]
    assert swarm.losses[:, 1].tolist() == [1.7, 1.5, 1.5]
    assert np.isnan(swarm.losses[:2, 0]).all() and swarm.losses[2, 0] == 0.9
    assert swarm.noise[1] == pytest.approx(np.sqrt(0.02))
    assert swarm.unit == "bits_per_byte"


def test_components_in_another_order_are_put_in_order() -> None:
    other = Record("b", "prose", ("books", "web"), (PPB // 10, PPB - PPB // 10), loss=2.0, proxy="p1")
    swarm = swarm_of([record("a", "prose", PPB // 4), other])
    assert swarm.weights.tolist() == [[0.25, 0.75], [0.9, 0.1]]
    assert swarm.unit == "loss"  # one of them has no bits per byte: losses, which both have
    assert swarm.losses[:, 0].tolist() == [3.0, 2.0]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([], "no run records"),
        ([record("a", "t", 1), record("b", "t", 1, proxy="p2")], "2 proxies"),
        ([record("a", "t", 1), record("a", "t", 1)], "says two things of t"),
        ([record("a", "t", 1), Record("b", "t", ("web", "wiki"), (1, PPB - 1), proxy="p1")], "'wiki'"),
        (
            [record("a", "t", 1), Record("b", "t", ("web",), (PPB,), proxy="p1")],
            "says nothing of component books",
        ),
        ([Record("b", "t", ("web",), (PPB - 1,), proxy="p1")], "add up to 999999999"),
    ],
)
def test_records_that_cannot_be_one_swarm_are_named(records: list[Record], message: str) -> None:
    with pytest.raises(InputError, match=message):
        swarm_of(records)


def test_a_file_that_holds_no_records_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a Parquet file"):
        decode_records(b"PAR1", "runs.parquet")
    with pytest.raises(InputError, match=r"absent.parquet cannot be read"):
        read_records(tmp_path / "absent.parquet")


LONG = """run,target,bits_per_byte,seed,weight:web,weight:books
a,prose,1.5,0,0.25,0.75
a,code,0.9,0,0.25,0.75
b,prose,1.25,1,0.3333,0.6666
b,code,,1,0.3333,0.6666
"""


def test_the_long_form_is_a_row_a_run_and_target(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("\ufeff" + LONG)
    records = import_runs(path)
    assert [(found.run, found.target, found.bits_per_byte) for found in records] == [
        ("a", "prose", 1.5),
        ("a", "code", 0.9),
        ("b", "prose", 1.25),
    ]
    assert records[0].requested_ppb == (PPB // 4, 3 * PPB // 4)
    assert records[2].seed == 1 and sum(records[2].requested_ppb) == PPB
    assert records[2].requested_ppb[0] == pytest.approx(PPB * 3333 / 9999, abs=1)
    assert swarm_of(records).losses.shape == (2, 2)


RATIOS = """run,name,index,dclm,wiki
x1,first,0,0.9,0.1
x2,second,1,0.2,0.8
"""
METRICS = """run,name,index,arc bpb,mbpp bpb
x2,second,1,0.7,1.5
x1,first,0,0.8,1.4
"""


def test_names_keep_the_line_ends_and_marks_that_stand_inside_of_them(tmp_path: Path) -> None:
    """Two runs whose names differ by a line end alone stay two."""
    path = tmp_path / "runs.csv"
    rows = '"a\r\nb",t,1,0.5,0.5\r\nab,t,2,0.5,0.5\r\nc\u2028d,t,3,0.5,0.5\r\n'
    path.write_bytes(f"\ufeffrun,target,bits_per_byte,weight:web,weight:books\r\n{rows}".encode())
    found = {record.run: record.bits_per_byte for record in import_runs(path)}
    assert found == {"a\r\nb": 1.0, "ab": 2.0, "c\u2028d": 3.0}


def test_runs_in_two_units_are_never_one_swarm(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("run,target,bits_per_byte,loss,weight:web,weight:books\na,t,1,,0.5,0.5\nb,t,,2,0.5,0.5\n")
    with pytest.raises(InputError, match="run a has bits_per_byte of t and no loss"):
        swarm_of(import_runs(path))


def test_two_wide_files_are_joined_by_their_run(tmp_path: Path) -> None:
    ratios, metrics = tmp_path / "ratios.csv", tmp_path / "metrics.csv"
    ratios.write_text(RATIOS)
    metrics.write_text(METRICS)
    swarm = swarm_of(import_runs(ratios, metrics, unit="bits_per_byte"))
    assert swarm.components == ("dclm", "wiki") and swarm.targets == ("arc bpb", "mbpp bpb")
    assert swarm.weights.tolist() == [[0.9, 0.1], [0.2, 0.8]]
    assert swarm.losses.tolist() == [[0.8, 1.4], [0.7, 1.5]]


def test_prefixes_that_all_columns_share_by_habit_are_taken_off(tmp_path: Path) -> None:
    weights, losses = tmp_path / "mixture.csv", tmp_path / "loss.csv"
    weights.write_text("index,train_web,train_code\n1,0.498,0.5\n")
    losses.write_text("index,metric/web_val_loss,metric/law_val_loss\n1,3.5,4.5\n")
    swarm = swarm_of(import_runs(weights, losses))
    assert swarm.components == ("web", "code") and swarm.targets == ("law", "web")
    assert swarm.weights[0] == pytest.approx([0.498 / 0.998, 0.5 / 0.998], abs=1e-9)
    assert swarm.unit == "loss" and swarm.losses.tolist() == [[4.5, 3.5]]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("a,code,0.9", "a,code,nan", r"line 3, column 'bits_per_byte': a loss is nan; leave out a run"),
        ("a,code,0.9", "a,code,high", r"line 3, column 'bits_per_byte': a loss is 'high'; a number"),
        ("a,code,0.9", "a,prose,0.9", r"line 3, column 'target': run a has a second row"),
        (
            "b,code,,1,0.3333,0.6666",
            "b,code,,1,0.4,0.6",
            r"line 5, column 'run': the weights of run b differ",
        ),
        ("0,0.25,0.75\na,code", "0,0.25,0.65\na,code", r"line 2, .*add up to 0.9, not 1"),
        (
            "a,prose,1.5,0,0.25,0.75",
            "a,prose,1.5,0,-0.25,1.25",
            r"line 2, column 'weight:web': a weight is -0.25",
        ),
        ("a,prose,1.5,0,0.25,0.75", "a,prose,1.5,0,,0.75", r"line 2, column 'weight:web': a weight is ''"),
        ("a,prose,1.5,0,0.25,0.75", "a,prose,1.5,0,0.25", r"line 2: 5 cells where the header has 6"),
        ("a,prose,1.5,0,", "a,prose,1.5,0.5,", r"line 2, column 'seed': seed is 0.5; a whole number"),
        ("weight:books", "wieght:books", r"column 'wieght:books' is not known; known: .*weight:COMPONENT"),
        ("weight:books", "weight:web", r"two columns 'weight:web'"),
        ("target,", "set,", r"column 'set' is not known"),
        (LONG, "", r"no table with commas"),
        ("a,prose,1.5,0,", "a,prose,1.5,1e30,", r"line 2, column 'seed': seed is 1e30; a whole number"),
        ("a,prose,1.5,0,", "a,prose,1.5,9007199254740993,", r"below 2\^53"),
        ("a,prose,1.5,", "a,prose,-1.5,", r"line 2, column 'bits_per_byte': .*cannot be below 0"),
        ("a,prose,", "a,,", r"line 2, column 'target': the target has no name"),
        ("a,prose,", ",prose,", r"line 2, column 'run': the run has no name"),
        ("a,prose,", '"a,prose,', r"line \d+: unexpected end of data; is a quotation mark open"),
        ("a,prose,", f"{'a' * 140_000},prose,", r"line 2: field larger than field limit"),
        ("weight:books", "weight: web", r"two columns are weights of 'web'"),
        ("weight:books", "weight:", r"a column of weights names no component"),
        ("0.25,0.75\na,code", "25,75\na,code", r"a weight is 25; shares from 0 to 1"),
        ("0.25,0.75\na,code", "25%,75%\na,code", r"a weight is '25%'; a number is needed"),
        ("0.25,0.75\na,code", "inf,0.75\na,code", r"a weight is inf"),
    ],
)
def test_a_mistake_in_the_long_form_is_named_with_its_place(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in LONG
    path = tmp_path / "runs.csv"
    path.write_text(LONG.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        import_runs(path)


@pytest.mark.parametrize(
    ("ratios", "metrics", "message"),
    [
        (
            RATIOS,
            METRICS.replace("x2", "x3"),
            r"ratios.csv, line 3, column 'run': run x2 is not in .*metrics.csv",
        ),
        (
            RATIOS,
            METRICS + "x9,ninth,9,1,1\n",
            r"metrics.csv, line 4, column 'run': run x9 is not in .*ratios",
        ),
        (RATIOS + "x1,first,0,0.9,0.1\n", METRICS, r"line 4, column 'run': run x1 stands in line 2 already"),
        (
            RATIOS.replace("run", "model"),
            METRICS.replace("run,name,index", "id,a,b"),
            r"share no column that names a run",
        ),
        (RATIOS, "run\nx1\n", r"no table with commas"),
        (RATIOS, "run,name\nx1,first\nx2,second\n", r"metrics.csv has no column beside"),
        (RATIOS, METRICS.replace("0.8,1.4", ",").replace("0.7,1.5", ","), r"no run has a loss"),
    ],
)
def test_a_mistake_in_the_wide_form_is_named_with_its_place(
    tmp_path: Path, ratios: str, metrics: str, message: str
) -> None:
    one, other = tmp_path / "ratios.csv", tmp_path / "metrics.csv"
    one.write_text(ratios)
    other.write_text(metrics)
    with pytest.raises(InputError, match=message):
        import_runs(one, other)


def test_components_that_a_study_does_not_have_or_that_are_missing_are_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(LONG)
    with pytest.raises(InputError, match=r"no component is called 'books'; did you mean 'book'"):
        import_runs(path, components=["web", "book"])
    with pytest.raises(InputError, match=r"no column for component 'code'"):
        import_runs(path, components=["web", "books", "code"])
    with pytest.raises(InputError, match=r"absent.csv cannot be read"):
        import_runs(tmp_path / "absent.csv")
