from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.extract.limits import Limits, depth, over

LIMITS = Limits(max_tags=1000, max_depth=20, max_run=5000)


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("<p>a</p>" * 500, None),
        ("<p>a</p>" * 501, "too_many_tags"),
        ("<div>" * 20 + "a" + "</div>" * 20, None),
        ("<div>" * 21 + "a" + "</div>" * 21, "too_deep"),
        ("<DIV>" * 21, "too_deep"),
        ("<p>" + "a" * 4998, None),
        ("<p>" + "a" * 4999, "long_run"),
        ("", None),
    ],
)
def test_bounds_fall_where_they_say(page: str, reason: str | None) -> None:
    assert over(page, LIMITS) == reason


@pytest.mark.parametrize(
    ("page", "levels"),
    [
        ("<p>one<p>two<p>three", 0),
        ("<ul>" + "<li>x" * 300 + "</ul>", 1),
        ("<table>" + "<tr><td>x" * 300 + "</table>", 1),
        ("<br>" * 300, 0),
        ("<div><span><span></div>" * 300, 3),
        ("</div>" * 300 + "<div>", 1),
        ("<script>" + "<div>" * 300 + "</script><div>", 1),
        ("<!--" + "<div>" * 300 + "--><div>", 1),
        ("<a href='x>y'>" * 2, 2),
    ],
)
def test_depth_counts_what_is_open_and_not_what_merely_lacks_an_end_tag(page: str, levels: int) -> None:
    assert depth(page, 10**6) == levels


def test_tags_that_close_themselves_make_no_page_too_deep() -> None:
    page = "<svg>" + "<path d='m'/>" * 300 + "</svg>" + "<SPAN class='i' />" * 300
    assert depth(page, 256) == 1
    assert over(page, Limits()) is None


@given(st.integers(1, 60), st.integers(1, 60))
def test_depth_of_nested_elements_is_their_number(levels: int, repeats: int) -> None:
    assert depth(("<div>" * levels + "</div>" * levels) * repeats, 10**6) == levels


@given(st.text(alphabet="<>/!-divscript 'a=\n", max_size=300))
def test_any_page_has_a_depth(page: str) -> None:
    assert 0 <= depth(page, 10**6) <= page.count("<")


@pytest.mark.timeout(300)  # a quadratic scan of 2 MB would take hours
@pytest.mark.parametrize(
    "unit", ["<div>", "</div>", "<!--", "<script>", "<", "<a ", "<a b='", "<b><i></b>", "<div></p>", "a"]
)
@pytest.mark.parametrize("start", ["", "<b>" * 300 + "<a"])
def test_depth_is_linear_in_the_page(unit: str, start: str) -> None:
    page = start + unit * (2_000_000 // len(unit))
    assert over(page, Limits()) in (None, "too_many_tags", "too_deep")
    assert 0 <= depth(page, 10**9) <= page.count("<")
