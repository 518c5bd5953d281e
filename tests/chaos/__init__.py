"""Random kills of every process of the product while real jobs run, and what must hold."""
