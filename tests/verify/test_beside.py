"""Lava's own models in a process beside the others: the same comparisons, and no process is left."""

import os
from dataclasses import asdict
from multiprocessing import active_children

import pytest
from networks import inputs_for, int_chain

from mpbn_deploy.base import SimulationError
from mpbn_deploy.execute.lava import installed_version
from mpbn_deploy.verify import executions, verify

pytestmark = pytest.mark.skipif(installed_version("lava-nc") is None, reason="needs Lava")
BUDGET = 8.0


def test_a_process_beside_this_one_compares_the_same(monkeypatch):
    network = int_chain()
    reports = []
    for pays in (True, False):
        monkeypatch.setattr(executions, "_pays", lambda given, pays=pays: pays)
        reports.append(verify(network, inputs_for(network), budget=BUDGET))
    together, in_turn = ([asdict(one) for one in report.comparisons] for report in reports)
    assert together == in_turn
    assert reports[0].lavas_own is not None and not reports[0].lavas_own.not_run
    assert not active_children()


def test_a_process_that_dies_is_a_failure(monkeypatch):
    monkeypatch.setattr(executions, "_pays", lambda given: True)
    monkeypatch.setattr(executions, "compare_here", lambda *given, **options: os._exit(7))
    network = int_chain()
    report = verify(network, inputs_for(network), budget=BUDGET)
    assert not report.passed and report.failed == ("Lava's own models",)
    assert report.lavas_own.not_run == "its process ended with exit code 7"


def test_an_error_there_is_raised_here(monkeypatch):
    def fail(*given, **options):
        raise SimulationError("not today")

    monkeypatch.setattr(executions, "_pays", lambda given: True)
    monkeypatch.setattr(executions, "compare_here", fail)
    network = int_chain()
    with pytest.raises(SimulationError, match="not today"):
        verify(network, inputs_for(network), budget=BUDGET)
    assert not active_children()
