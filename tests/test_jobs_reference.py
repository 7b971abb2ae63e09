"""The page of recipe keys is the code's own."""

from pathlib import Path

from corpusmill.jobs.reference import reference


def test_the_reference_of_recipe_keys_is_what_the_code_says() -> None:
    page = Path(__file__).parent.parent / "docs" / "recipes.md"
    made = "python -m corpusmill.jobs.reference > docs/recipes.md"
    assert page.read_text(encoding="utf-8") == reference(), f"out of date: run {made}"
