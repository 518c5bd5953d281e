from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """What is wrong, and where. One that is passing may be on its way to be right."""

    code: str
    where: str
    what: str
    is_passing: bool = False
