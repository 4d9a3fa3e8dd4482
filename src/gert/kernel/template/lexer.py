"""The beginning of actions, and their tokens."""

import re

SPACE = " \t\r\n"

# The groups of TOKEN, in its order.
CLOSE, PATH, VARIABLE, WORD, QUOTED, RAW, NUMBER, CHARACTER = range(1, 9)
LEFT_PAREN, RIGHT_PAREN, PIPE, DECLARE, EQUALS, COMMA, DOT = range(9, 16)

# `{{`, a trim marker, and the start of a comment.
OPENING = re.compile(r"\{\{(-[ \t\r\n])?(/\*)?")
COMMENT_END = re.compile(r"\*/(?:[ \t\r\n](-)\}\}|\}\})")

# Possessive groups are left out: before Python 3.11.3 they match too much. Nothing here can backtrack far.
_ENDS = r"(?=[ \t\r\n,|:()]|\}\}|\Z)"
TOKEN = re.compile(
    rf"""[ \t\r\n]*+(?:
    ((?<=[ \t\r\n])-\}}\}}|\}}\}})
    |(\.[^\W\d]\w*+(?:[./]\w++)*){_ENDS}
    |(\$\w*+(?:\.\w++(?:[./]\w++)*)?){_ENDS}
    |([^\W\d]\w*+){_ENDS}
    |("[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*")
    |(`[^`]*+`)
    |([+-]?\.?[0-9](?:[eEpP][+-](?=[0-9])|[\w.])*)
    |('(?!')[^'\\\n]*+(?:\\[^\n][^'\\\n]*+)*')
    |(\()
    |(\)(?:\.\w++(?:[./]\w++)*)?)
    |(\|(?!\|))
    |(:=)
    |(=(?!=))
    |(,)
    |(\.){_ENDS}
    )""",
    re.VERBOSE,
)
