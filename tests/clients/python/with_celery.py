"""Celery: Keyway as broker and as result backend."""

import os
import subprocess
import sys

from celery import chord, group

from cases import case, equal
from tasks import add, second_try, total

LIBRARY = "Celery"
RESULT_SECONDS = 25


def with_worker(function):
    """Runs a worker process beside the function."""

    def run():
        here = os.path.dirname(os.path.abspath(__file__))
        errors = None if os.environ.get("STOCK_VERBOSE") else subprocess.DEVNULL
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--concurrency", "1"],
            cwd=here, stdout=subprocess.DEVNULL, stderr=errors,
        )
        try:
            function()
        finally:
            worker.terminate()
            try:
                worker.wait(timeout=5)
            except subprocess.TimeoutExpired:
                worker.kill()

    return run


@case(LIBRARY, "task and result")
@with_worker
def task():
    result = add.delay(2, 3)
    equal(result.get(timeout=RESULT_SECONDS), 5)
    equal(result.state, "SUCCESS")


@case(LIBRARY, "group and chord")
@with_worker
def groups():
    results = group(add.s(nth, nth) for nth in range(5))()
    equal(results.get(timeout=RESULT_SECONDS), [0, 2, 4, 6, 8])
    result = chord(add.s(nth, 1) for nth in range(5))(total.s())
    equal(result.get(timeout=RESULT_SECONDS), 15)


@case(LIBRARY, "delay and retry")
@with_worker
def delays():
    equal(add.apply_async((1, 1), countdown=0.5).get(timeout=RESULT_SECONDS), 2)
    equal(second_try.delay().get(timeout=RESULT_SECONDS), 1)
