"""redis-py's cluster client against Keyways that pose as a cluster.

    cluster_client.py PROTOCOL PORTS [PID]

PORTS are those of all nodes, with commas between. With PID, that of the process
behind the first of them, it is killed at the end, and the client is to go on.
"""

import os
import signal
import sys
import threading
import time
import unittest

import redis
from redis.cluster import ClusterNode, LoadBalancingStrategy, RedisCluster
from redis.exceptions import AskError, MovedError

PROTOCOL = int(sys.argv[1])
PORTS = [int(port) for port in sys.argv[2].split(",")]
VICTIM = int(sys.argv[3]) if len(sys.argv) > 3 else None

redirects = []
for kind in (MovedError, AskError):
    made = kind.__init__

    def noted(self, *arguments, made=made, **options):
        redirects.append(arguments)
        made(self, *arguments, **options)

    kind.__init__ = noted


def connect(**options):
    nodes = [ClusterNode("127.0.0.1", port) for port in PORTS]
    options.setdefault("protocol", PROTOCOL)
    return RedisCluster(startup_nodes=nodes, socket_timeout=10, **options)


def wait_until(what, holds):
    deadline = time.monotonic() + 30
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError("it did not come to: " + what)
        time.sleep(0.02)


class ClusterClient(unittest.TestCase):
    def setUp(self):
        self.redis = connect()
        self.prefix = "cluster:%d:%s:" % (PROTOCOL, self._testMethodName)

    def tearDown(self):
        self.redis.close()

    def key(self, name):
        return self.prefix + str(name)

    def test_it_knows_every_node(self):
        ports = sorted(node.port for node in self.redis.get_nodes())
        self.assertEqual(ports, sorted(PORTS))
        slots = self.redis.nodes_manager.slots_cache
        self.assertEqual(len(slots), 16384)
        for nth, port in enumerate(PORTS):
            bounds = [16384 * one // len(PORTS) for one in (nth, nth + 1)]
            for slot in (bounds[0], bounds[1] - 1):
                self.assertEqual(slots[slot][0].port, port, slot)
        info = self.redis.info("server", target_nodes=RedisCluster.RANDOM)
        self.assertEqual(info["redis_mode"], "cluster")
        self.assertEqual(self.redis.cluster_info(target_nodes=RedisCluster.RANDOM)["cluster_state"], "ok")
        self.assertEqual(len(self.redis.cluster_nodes()), len(PORTS))

    def test_many_keys(self):
        r = self.redis
        for nth in range(400):
            self.assertTrue(r.set(self.key(nth), nth))
        for nth in range(400):
            self.assertEqual(r.get(self.key(nth)), str(nth).encode())
        pairs = {self.key("m%d" % nth): str(nth).encode() for nth in range(100)}
        r.mset_nonatomic(pairs)
        self.assertEqual(r.mget_nonatomic(list(pairs)), list(pairs.values()))
        self.assertEqual(r.delete(*pairs), 100)

    def test_pipelines(self):
        pipeline = self.redis.pipeline()
        for nth in range(300):
            pipeline.set(self.key(nth), nth).get(self.key(nth)).incr(self.key("n%d" % (nth % 7)))
        replies = pipeline.execute()
        self.assertEqual(replies[1::3], [str(nth).encode() for nth in range(300)])
        self.assertTrue(all(reply is True for reply in replies[0::3]))

    def test_a_transaction_in_one_slot(self):
        a, b = self.key("{t}a"), self.key("{t}b")
        self.redis.delete(a, b)
        with self.redis.pipeline(transaction=True) as transaction:
            transaction.incr(a).incr(a).set(b, "x").get(b)
            replies = transaction.execute()
            self.assertEqual(replies[:2] + replies[3:], [1, 2, b"x"])

    def test_replicas_may_be_asked_for(self):
        r = connect(load_balancing_strategy=LoadBalancingStrategy.ROUND_ROBIN)
        r.set(self.key("a"), "1")
        self.assertEqual(r.get(self.key("a")), b"1")
        self.assertTrue(r.readonly(target_nodes=RedisCluster.ALL_NODES))
        r.close()

    def test_publish_and_subscribe(self):
        listener = self.redis.pubsub()
        listener.subscribe(self.key("channel"))
        self.assertEqual(listener.get_message(timeout=10)["type"], "subscribe")
        wait_until("a subscriber", lambda: self.redis.publish(self.key("channel"), "hello") > 0)
        self.assertEqual(listener.get_message(timeout=10)["data"], b"hello")
        listener.close()

    def test_sharded_channels(self):
        listener = self.redis.pubsub()
        channels = [self.key("shard%d" % nth) for nth in range(8)]
        listener.ssubscribe(*channels)
        for channel in channels:
            wait_until("a subscriber", lambda: self.redis.spublish(channel, "to " + channel) > 0)
        heard = set()

        def all_heard():
            for node in self.redis.get_nodes():
                message = listener.get_sharded_message(timeout=0.1)
                if message and message["type"] == "smessage":
                    heard.add(message["data"])
            return len(heard) == len(channels)

        wait_until("all messages", all_heard)
        listener.close()

    def test_scripts_and_waiting(self):
        r, key = self.redis, self.key("list")
        self.assertEqual(r.eval("return redis.call('LPUSH', KEYS[1], ARGV[1])", 1, key, "x"), 1)
        self.assertEqual(tuple(r.blpop(key, timeout=10)), (key.encode(), b"x"))
        threading.Timer(0.2, lambda: connect().rpush(key, "late")).start()
        self.assertEqual(tuple(r.blpop(key, timeout=10)), (key.encode(), b"late"))


def goes_on_without_the_first():
    """What one had that is gone the others have, and nothing is lost."""
    r = connect()
    keys = ["stays:%d:%d" % (PROTOCOL, nth) for nth in range(200)]
    for key in keys:
        r.set(key, key)
    os.kill(VICTIM, signal.SIGKILL)
    for key in keys:

        def is_there():
            try:
                return r.get(key) == key.encode()
            except (redis.ConnectionError, redis.TimeoutError, redis.exceptions.ClusterError):
                return False

        wait_until("an answer for " + key, is_there)
        wait_until("a write of " + key, lambda: r.set(key, "again"))
    ports = {node.port for node in r.get_primaries()}
    assert ports == set(PORTS[1:]), ports
    r.close()


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1], exit=False).result
    if result.wasSuccessful() and VICTIM:
        goes_on_without_the_first()
        print("WENT ON")
    print("REDIRECTS %d" % len(redirects))
    sys.exit(not result.wasSuccessful())
