"""What the hint about a guard without a template suggests."""

import pytest

from gert.kernel.runbook.finding import Severity
from gert.kernel.runbook.validate.domain.guards import constant_guard
from gert.kernel.template import parse


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        pytest.param('env == "production"', '{{ eq .env "production" }}', id="a comparison with quoted text"),
        pytest.param("env == 'production'", '{{ eq .env "production" }}', id="a comparison in single quotes"),
        pytest.param("env != production", '{{ ne .env "production" }}', id="a comparison with a bare word"),
        pytest.param(".probe.status >= 500", "{{ ge .probe.status 500 }}", id="a comparison with a number"),
        pytest.param("a.b == .c", "{{ eq .a.b .c }}", id="a comparison of two names"),
        pytest.param('{{ .env }} == "production"', '{{ eq .env "production" }}', id="text outside a template"),
        pytest.param('eq .env "production"', '{{ eq .env "production" }}', id="a template without braces"),
        pytest.param("!done", "{{ not .done }}", id="a negation"),
        pytest.param("not .done", "{{ not .done }}", id="a negation in words"),
        pytest.param("done", "{{ .done }}", id="a name"),
        pytest.param(".done", "{{ .done }}", id="a path"),
        pytest.param("no", "false", id="a word of YAML 1.1"),
        pytest.param("env == a && b", '{{ eq .status "ok" }}', id="what cannot be guessed gets an example"),
        pytest.param("in the morning", '{{ eq .status "ok" }}', id="a sentence gets an example"),
    ],
)
def test_a_guard_without_a_template_is_an_error_that_shows_the_template(text: str, suggestion: str) -> None:
    found = constant_guard("D44", ("steps", 0, "when"), "`when`", parse(text))
    assert found is not None
    assert (found.severity, f"`{suggestion}`" in (found.hint or "")) == (Severity.ERROR, True), found.hint


@pytest.mark.parametrize("text", ["true", "FALSE"])
def test_a_literal_is_only_a_warning(text: str) -> None:
    found = constant_guard("D44", ("steps", 0, "when"), "`when`", parse(text))
    assert found is not None
    assert found.severity is Severity.WARNING
