"""Nobody goes without a similar document that stays."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.dedup.survivors import NOBODY, Decision, decide

graphs = st.integers(1, 14).flatmap(
    lambda count: st.tuples(
        st.just(count),
        st.lists(
            st.tuples(st.integers(0, count - 1), st.integers(0, count - 1), st.sampled_from([0.7, 0.8, 1.0])),
            max_size=40,
        ),
        st.permutations(range(count)),
    )
)


def decided(count: int, edges: list[tuple[int, int, float]], rank: list[int]) -> Decision:
    """`rank[x]` is the place of x in survivor order; edges are pointed accordingly."""
    pointed = [(a, b, s) if rank[a] < rank[b] else (b, a, s) for a, b, s in edges if a != b]
    first, second = (np.array([edge[i] for edge in pointed], np.uint32) for i in (0, 1))
    score = np.array([edge[2] for edge in pointed], np.float64)
    content = np.array([1000 + rank[x] for x in range(count)], np.uint64)
    return decide(first, second, score, content, np.ones(count, np.uint32))


@given(graphs)
def test_laws_of_survival(graph: tuple[int, list[tuple[int, int, float]], list[int]]) -> None:
    count, edges, rank = graph
    decision = decided(count, edges, rank)
    scores: dict[tuple[int, int], float] = {}
    for a, b, score in edges:
        if a != b:
            for pair in ((a, b), (b, a)):
                scores[pair] = max(score, scores.get(pair, 0.0))
    for x in range(count):
        stays_near = {
            y: s for (z, y), s in scores.items() if z == x and decision.kept[y] and rank[y] < rank[x]
        }
        assert decision.kept[x] == (not stays_near)  # falls exactly when a better similar one stays
        if stays_near:
            assert decision.score[x] == np.float64(max(stays_near.values()))
            assert scores[x, int(decision.by[x])] == max(stays_near.values())
        else:
            assert decision.by[x] == NOBODY


@given(graphs, st.randoms(use_true_random=False))
def test_order_of_edges_does_not_matter(
    graph: tuple[int, list[tuple[int, int, float]], list[int]], random: object
) -> None:
    count, edges, rank = graph
    shuffled = list(edges)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = decided(count, edges, rank), decided(count, shuffled + edges[:3], rank)
    for name in ("kept", "by", "score", "cluster", "size"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


@given(graphs)
def test_clusters_are_connected_components(
    graph: tuple[int, list[tuple[int, int, float]], list[int]],
) -> None:
    count, edges, rank = graph
    decision = decided(count, edges, rank)
    members = [{x} for x in range(count)]
    for a, b, _ in edges:
        if a != b and members[a] is not members[b]:
            members[a] |= members[b]
            for x in members[b]:
                members[x] = members[a]
    for x in range(count):
        assert decision.size[x] == len(members[x])
        assert decision.cluster[x] == 1000 + min(rank[y] for y in members[x])


def test_a_chain_of_sixty_keeps_a_third_at_least() -> None:
    """Each is similar to the next only; components alone would keep one."""
    edges = [(i, i + 1, 0.82) for i in range(59)]
    for rank in (list(range(60)), [(i * 17) % 60 if i != 60 else 60 for i in range(60)]):
        decision = decided(60, edges, rank)
        assert 20 <= decision.kept.sum() <= 30
        assert decision.size.tolist() == [60] * 60
        for x in np.flatnonzero(~decision.kept):
            assert abs(int(decision.by[x]) - x) == 1 and decision.kept[decision.by[x]]


def test_copies_count_in_the_size_of_a_cluster() -> None:
    one = np.array([0], np.uint32)
    decision = decide(
        one,
        np.array([1], np.uint32),
        np.array([0.9], np.float64),
        np.array([5, 9], np.uint64),
        np.array([3, 2], np.uint32),
    )
    assert decision.size.tolist() == [5, 5] and decision.cluster.tolist() == [5, 5]


def test_no_documents_no_decision() -> None:
    none = np.empty(0, np.uint32)
    decision = decide(none, none, np.empty(0, np.float64), np.empty(0, np.uint64), none)
    assert len(decision.kept) == 0
