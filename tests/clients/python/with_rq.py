"""RQ: its queue, its worker, its results. Its keys have fixed names without a hash tag."""

import redis
from rq import Queue, SimpleWorker, Worker

import tasks
from cases import address, case, check, equal

LIBRARY = "RQ"


def connect():
    host, port = address()
    return redis.Redis(host=host, port=port)


@case(LIBRARY, "job and result")
def job():
    connection = connect()
    queue = Queue("stock-jobs", connection=connection)
    made = queue.enqueue(tasks.product, 6, 7)
    equal(queue.count, 1)
    Worker([queue], connection=connection).work(burst=True)
    equal(made.get_status(refresh=True), "finished")
    equal(made.return_value(refresh=True), 42)


@case(LIBRARY, "failed job")
def failed():
    connection = connect()
    queue = Queue("stock-failed", connection=connection)
    made = queue.enqueue(tasks.failing)
    SimpleWorker([queue], connection=connection).work(burst=True)
    equal(made.get_status(refresh=True), "failed")
    check(made.id in queue.failed_job_registry.get_job_ids(), "the registry of failed jobs")
    queue.failed_job_registry.requeue(made.id)
    equal(made.get_status(refresh=True), "queued")
