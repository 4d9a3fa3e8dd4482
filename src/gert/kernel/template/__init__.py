"""The `{{ }}` language: parse a template once, then render it, evaluate it, or find the data it reads."""

from gert.kernel.template.budget import Budget
from gert.kernel.template.evaluator import condition, evaluate, render
from gert.kernel.template.nested import compile_value, render_value, templates_in
from gert.kernel.template.printer import render_text
from gert.kernel.template.references import EACH, Reference
from gert.kernel.template.template import Template, parse
from gert.kernel.template.values import MISSING, Missing, truth
