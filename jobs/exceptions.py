class GpuJobsError(Exception):
    """Something the caller asked for can not be done; the text says what to do."""


class TransitionConflict(GpuJobsError):
    """Somebody else moved the row first, or the move is not allowed from here."""


class OperatorsOnly(GpuJobsError):
    """What only an operator may do, or undo."""


class OverQuota(GpuJobsError):
    """More than the owner, or the owner's group, may have at once."""


class TooManyTokens(GpuJobsError):
    """A person has as many API tokens as anybody may have."""
