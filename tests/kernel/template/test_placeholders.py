"""Templates as people read them before they have values."""

import pytest

from gert.kernel.template.placeholders import with_placeholders
from gert.kernel.template.template import parse


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("plain", "plain", id="text"),
        pytest.param("Restart {{ .pod }}", "Restart ‹pod›", id="a name"),
        pytest.param("{{ .step.measure.used_percent }} % of {{ .path }}", "‹used_percent› % of ‹path›", id="a path"),
        pytest.param("{{ upper .name }}", "‹name›", id="a function of one value"),
        pytest.param("{{ add .a .b }}", "‹…›", id="a function of two values"),
        pytest.param("{{ if .x }}a{{ else }}b{{ end }}", "‹x›", id="a condition"),
        pytest.param('{{ $x := .a }}{{ "t" }}{{ $x }}', "‹…›‹a›", id="literals and variables"),
        pytest.param("{{ . }}", "‹…›", id="everything"),
        pytest.param("{{ range .xs }}{{ . }}{{ end }}", "‹xs›", id="a loop"),
    ],
)
def test_each_action_is_a_placeholder(source: str, shown: str) -> None:
    assert with_placeholders(parse(source)) == shown
