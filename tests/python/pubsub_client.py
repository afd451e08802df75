"""redis-py's publish and subscribe against Keyway: pubsub_client.py PORT store|sharded"""

import queue
import sys
import time
import unittest

import redis

PORT = int(sys.argv[1])
KIND = sys.argv[2]


def connect(**options):
    return redis.Redis(host="127.0.0.1", port=PORT, socket_timeout=10, **options)


def next_message(pubsub):
    end = time.monotonic() + 10
    while time.monotonic() < end:
        message = pubsub.get_message(timeout=1)
        if message is not None:
            return message["type"], message["pattern"], message["channel"], message["data"]
    raise AssertionError("no message in time")


class PubSub(unittest.TestCase):
    def setUp(self):
        self.redis = connect()
        self.pubsub = self.redis.pubsub()

    def tearDown(self):
        self.pubsub.close()
        self.redis.close()

    def test_channels_and_patterns(self):
        self.pubsub.subscribe("py:a", "py:b")
        self.pubsub.psubscribe("py:*")
        told = [next_message(self.pubsub) for _ in range(3)]
        self.assertEqual(
            told,
            [
                ("subscribe", None, b"py:a", 1),
                ("subscribe", None, b"py:b", 2),
                ("psubscribe", None, b"py:*", 3),
            ],
        )
        count = self.redis.publish("py:b", "hello")
        self.assertEqual(count, 2 if KIND == "store" else count)
        self.assertEqual(next_message(self.pubsub), ("message", None, b"py:b", b"hello"))
        self.assertEqual(next_message(self.pubsub), ("pmessage", b"py:*", b"py:b", b"hello"))
        self.pubsub.unsubscribe()
        self.assertEqual(next_message(self.pubsub)[0], "unsubscribe")
        self.assertEqual(next_message(self.pubsub)[0], "unsubscribe")
        self.redis.publish("py:a", "again")
        self.assertEqual(next_message(self.pubsub), ("pmessage", b"py:*", b"py:a", b"again"))

    def test_handlers_in_a_thread(self):
        heard = queue.Queue()
        self.pubsub.subscribe(**{"py:thread": heard.put})
        self.pubsub.psubscribe(**{"py:thr*": heard.put})
        for word in ("subscribe", "psubscribe"):
            self.assertEqual(next_message(self.pubsub)[0], word)
        thread = self.pubsub.run_in_thread(sleep_time=0.1, daemon=True)
        for nth in range(100):
            self.redis.publish("py:thread", nth)
        data = [heard.get(timeout=10)["data"] for _ in range(200)]
        self.assertEqual(data, [str(nth // 2).encode() for nth in range(200)])
        thread.stop()
        thread.join(timeout=10)

    def test_ping_while_subscribed(self):
        self.pubsub.subscribe("py:ping")
        next_message(self.pubsub)
        self.pubsub.ping("are you there")
        self.assertEqual(next_message(self.pubsub)[3], b"are you there")

    def test_what_is_asked_about_channels(self):
        self.pubsub.subscribe("py:asked")
        next_message(self.pubsub)
        self.assertEqual(self.redis.pubsub_channels("py:ask*"), [b"py:asked"])
        self.assertEqual(self.redis.pubsub_numsub("py:asked")[0], (b"py:asked", 1))
        self.assertGreaterEqual(self.redis.pubsub_numpat(), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
