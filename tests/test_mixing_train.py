"""Proxies that are trained: the same records from the same seed, tokens counted as they came, losses by document."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from proxy_runs import small_run, view_of

from corpusmill.mixing.proxy import SIZES, Training, View, plan_of
from corpusmill.mixing.records import Record, encode_records
from corpusmill.pipeline.errors import RunError
from corpusmill.shards.mixture import PPB
from corpusmill.shards.permutation import derive
from corpusmill.shards.reader import Shards

torch = pytest.importorskip("torch")

from corpusmill.mixing.decoder import Decoder  # noqa: E402
from corpusmill.mixing.train import alone, measure, train  # noqa: E402

SHORT = Training("64k", 2_000, eval_tokens=1_000)
LONG = Training("64k", 16_000)
MOSTLY = {
    name: {other: PPB // 10 * (8 if other == name else 1) for other in ("digits", "even", "mixed")}
    for name in ("digits", "even")
}


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    return view_of(small_run(tmp_path_factory.mktemp("train")))


@pytest.fixture(scope="module")
def learnt(view: View) -> dict[str, dict[str, Record]]:
    """Mixture -> target -> record."""
    runs = {name: train(view, LONG, weights, 0, name) for name, weights in MOSTLY.items()}
    return {name: {record.target: record for record in records} for name, records in runs.items()}


def test_the_same_run_gives_the_same_bytes_whatever_the_threads_and_another_seed_others(view: View) -> None:
    threads = torch.get_num_threads()
    found = []
    for count, seed in ((1, 4), (2, 4), (2, 5)):
        torch.set_num_threads(count)
        found.append(encode_records(train(view, SHORT, MOSTLY["even"], seed, "a")))
        assert torch.get_num_threads() == count
    torch.set_num_threads(threads)
    assert found[0] == found[1] != found[2]


def test_tokens_are_counted_as_they_came_through_the_stream(
    view: View, learnt: dict[str, dict[str, Record]]
) -> None:
    shards = Shards(view.root, plan=plan_of(view, LONG, MOSTLY["even"], 0))
    assert shards.plan.samples is not None
    wanted = dict.fromkeys(view.names, 0)
    samples = shards.order.samples(0, shards.plan.samples)
    for component, row in zip(samples.component.tolist(), samples.row.tolist(), strict=True):
        reader = shards.components[component]
        block = reader.view(int(reader.block_of(np.array([row]))[0]))
        ends = block.batch.column("doc_ends")[row - block.first_row].as_py()
        wanted[reader.component.name] += ends[-1] - 1  # a row's real tokens but the first are targets
    for record in learnt["even"].values():
        assert record.realised_tokens == tuple(wanted[name] for name in record.components)
        assert record.weights() == pytest.approx([0.1, 0.8, 0.1], abs=0.02)


def test_a_proxy_learns_what_its_mixture_holds(view: View, learnt: dict[str, dict[str, Record]]) -> None:
    for target, other in (("even", "digits"), ("digits", "even")):
        ours, theirs = (learnt[name][target].bits_per_byte for name in (target, other))
        assert ours is not None and theirs is not None and ours < theirs
    # Its words come in a fixed order, so that one who knows more than frequencies needs far less.
    unigram = next(held for held in view.targets if held.name == "even").unigram_bits_per_byte()
    assert (learnt["even"]["even"].bits_per_byte or 9) < 0.8 * unigram


def test_records_add_up(view: View, learnt: dict[str, dict[str, Record]]) -> None:
    for held in view.targets:
        record = learnt["even"][held.name]
        assert record.eval_bytes == record.document_bytes.sum() == held.document_bytes.sum()
        assert record.bits_per_byte == pytest.approx(record.document_bits.sum() / record.eval_bytes)
        assert record.loss == pytest.approx(record.document_bits.sum() * math.log(2) / record.eval_tokens)


def test_a_decoder_that_has_learnt_nothing_gives_every_token_the_same_bits(view: View) -> None:
    vocabulary = view.manifest.vocab_size
    model = Decoder(SIZES["64k"], vocabulary, view.manifest.sequence_length).draw(3)
    for held in view.targets:
        owner = held.document[:, 1:][held.predicted()]
        counts = np.bincount(owner, minlength=len(held.document_bytes))
        with alone("cpu"):
            bits = measure(model, held, "cpu")
        assert bits == pytest.approx(counts * math.log2(vocabulary), rel=1e-5)


def test_a_token_sees_those_before_it_in_its_document_and_nothing_else() -> None:
    model = Decoder(SIZES["64k"], 50, 8).draw(1)
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(2))
    tokens = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12]])
    document = torch.tensor([[1, 1, 1, 2, 2, 2, 2, 2]])
    plain = model(tokens, document)[0]
    for changed in range(8):
        other = tokens.clone()
        other[0, changed] = 40
        moved = (model(other, document)[0] - plain).abs().amax(1) > 1e-6
        assert moved.tolist() == [
            at >= changed and bool(document[0, at] == document[0, changed]) for at in range(8)
        ]


def test_where_a_document_stands_in_its_row_does_not_matter() -> None:
    model = Decoder(SIZES["250k"], 50, 8).draw(1)
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(2))
    first = model(torch.tensor([[5, 6, 7, 1, 1, 1, 1, 1]]), torch.tensor([[1, 1, 1, 2, 2, 2, 2, 2]]))
    later = model(torch.tensor([[1, 1, 1, 1, 1, 5, 6, 7]]), torch.tensor([[1, 1, 1, 1, 1, 2, 2, 2]]))
    assert torch.allclose(first[0, :3], later[0, 5:], atol=1e-4)


def test_runs_of_one_seed_begin_alike_and_read_each_component_in_one_order(view: View) -> None:
    orders = []
    for weights in MOSTLY.values():
        shards = Shards(view.root, plan=plan_of(view, LONG, weights, 7))
        samples = shards.order.samples(0, shards.plan.samples or 0)
        orders.append([samples.row[samples.component == place].tolist() for place in range(3)])
    for ours, theirs in zip(*orders, strict=True):
        shared = min(len(ours), len(theirs))
        assert shared > 40 and ours[:shared] == theirs[:shared]
    one, two, other = (Decoder(SIZES["64k"], 300, 32).draw(derive("proxy", seed)) for seed in (7, 7, 8))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(one.token.weight, other.token.weight)


def test_a_run_that_comes_apart_says_where(view: View) -> None:
    with pytest.raises(RunError, match=r"proxy run b: the loss is .* at step \d+ of 62; lower"):
        train(view, replace(SHORT, learning_rate=1e30), MOSTLY["even"], 0, "b")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_gpu_says_about_the_same(view: View, learnt: dict[str, dict[str, Record]]) -> None:
    for record in train(view, LONG, MOSTLY["even"], 0, "even", device="cuda"):
        here = learnt["even"][record.target]
        assert record.realised_tokens == here.realised_tokens
        assert record.bits_per_byte == pytest.approx(here.bits_per_byte, rel=0.05)


def test_a_run_that_comes_apart_in_its_last_step_is_no_record_without_a_loss(view: View) -> None:
    """One step is the last: its gradient was finite, the weights that it leaves are not."""
    with pytest.raises(RunError, match=r"proxy run c: its loss on target \w+ is no number"):
        train(view, replace(SHORT, budget_tokens=32, learning_rate=1e30), MOSTLY["even"], 0, "c")
