"""The watching loop on a node: it looks, writes wishes, and asks for tasks."""

from scheduler.supervisor.loop import AlreadySupervised, Supervisor, the_only_one

__all__ = ["AlreadySupervised", "Supervisor", "the_only_one"]
