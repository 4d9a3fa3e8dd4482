"""`gert models prices`."""

from tests.ecosystem.surfaces.cli.workbench import Project

from gert.ecosystem.models.price_table import price_table


def test_prices_are_shown_with_their_date(project: Project) -> None:
    shown = project.gert("models", "prices").ended(0)
    assert price_table().date in shown.out
    assert all(name in shown.out for name in price_table().models)
    document = project.gert("models", "prices", "claude-haiku-4-5", "--json").ended(0).said
    price = {"prompt": 1.0, "completion": 5.0, "cached": 0.1, "cache_write": 1.25}
    assert document["models"] == {"claude-haiku-4-5": price}


def test_a_model_that_is_not_listed_is_named(project: Project) -> None:
    wrong = project.gert("models", "prices", "gpt-5-mimi").ended(2)
    assert "`gpt-5-mimi` is unknown" in wrong.err
    assert "did you mean `gpt-5-mini`?" in wrong.err
