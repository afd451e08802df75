"""What the workers of the Celery and RQ cases run."""

import os

from celery import Celery

URL = "redis://%s/0" % os.environ["STOCK_ADDRESS"]

# The prefixes put all keys of the broker, and all of the results, on one shard.
app = Celery("tasks", broker=URL, backend=URL)
app.conf.broker_transport_options = {"global_keyprefix": "{celery}:"}
app.conf.result_backend_transport_options = {"global_keyprefix": "{celery-results}:"}


@app.task
def add(left, right):
    return left + right


@app.task
def total(parts):
    return sum(parts)


@app.task(bind=True, max_retries=3)
def second_try(self):
    if self.request.retries == 0:
        raise self.retry(countdown=0.2)
    return self.request.retries


def product(left, right):
    return left * right


def failing():
    raise ValueError("as the case wants")
