"""The answers that models are asked for."""

from pydantic import BaseModel, Field


class Text(BaseModel):
    """A plain answer."""

    response: str = Field(description="The whole answer, as plain text")


class Score(BaseModel):
    """How convincing one candidate is."""

    candidate: str
    score: float = Field(description="From 0, not convincing, to 1, fully convincing")


class Verdict(BaseModel):
    """The decision of a judge."""

    winner: str = Field(description="The name of the candidate that wins; empty if none does")
    consensus: bool = Field(description="Whether the candidates agree in substance")
    scores: list[Score]
    summary: str = Field(description="The reason for the decision, in one or two sentences")
