"""The same form sent twice makes one job; once it has been edited it makes another."""

import hashlib
import json
from typing import Any


def once(key: str, asked: Any) -> str | None:
    """The idempotency key of what is asked with a form that carries `key`."""
    text = json.dumps(asked, sort_keys=True, default=str)
    return f"{key}-{hashlib.sha256(text.encode()).hexdigest()[:32]}" if key else None
