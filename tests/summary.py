"""Say at the end, so that nobody overlooks it, which groups did not run, and why.

With CI=true nothing may be skipped: a skip fails the session.
"""

import os
from collections import Counter

import pytest


def _skips(reporter: pytest.TerminalReporter) -> Counter[str]:
    reasons: Counter[str] = Counter()
    for report in reporter.stats.get("skipped", []):
        reasons[str(report.longrepr[2])] += 1
    return reasons


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") == "true" and reporter and _skips(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = _skips(terminalreporter)
    if reasons:
        terminalreporter.section("NOT EVERYTHING RAN", red=True, bold=True)
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{count} skipped: {reason}")
