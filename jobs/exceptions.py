class GpuJobsError(Exception):
    """Something the caller asked for can not be done; the text says what to do."""


class TransitionConflict(GpuJobsError):
    """Somebody else moved the row first, or the move is not allowed from here."""
