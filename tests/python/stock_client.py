"""redis-py against Keyway: stock_client.py PORT store|sharded|password PASSWORD PROTOCOL"""

import sys
import threading
import unittest

import redis

PORT = int(sys.argv[1])
KIND = sys.argv[2]
PASSWORD = sys.argv[3]
PROTOCOL = int(sys.argv[4])


def connect(**options):
    if KIND == "password":
        options.setdefault("password", PASSWORD)
    options.setdefault("protocol", PROTOCOL)
    return redis.Redis(host="127.0.0.1", port=PORT, socket_timeout=10, **options)


class StockClient(unittest.TestCase):
    def setUp(self):
        self.redis = connect()
        self.prefix = "py:%s:%s:" % (KIND, self._testMethodName)

    def tearDown(self):
        self.redis.close()

    def key(self, name):
        return self.prefix + name

    def test_set_and_get(self):
        r, a = self.redis, self.key("a")
        self.assertTrue(r.ping())
        self.assertTrue(r.set(a, "value"))
        self.assertEqual(r.get(a), b"value")
        self.assertIsNone(r.get(self.key("none")))
        self.assertIsNone(r.set(a, "other", nx=True))
        self.assertEqual(r.set(a, "other", get=True), b"value")
        self.assertEqual(r.getdel(a), b"other")
        self.assertEqual(r.exists(a), 0)

    def test_values_of_any_bytes(self):
        value = bytes(range(256)) * 100
        self.redis.set(self.key("bytes"), value)
        self.assertEqual(self.redis.get(self.key("bytes")), value)

    def test_decoded_responses(self):
        r = connect(decode_responses=True)
        r.set(self.key("a"), "grüße 漢字")
        self.assertEqual(r.get(self.key("a")), "grüße 漢字")
        self.assertEqual(r.mget(self.key("a"), self.key("none")), ["grüße 漢字", None])

    def test_counters(self):
        r, n = self.redis, self.key("n")
        r.delete(n)
        self.assertEqual(r.incr(n), 1)
        self.assertEqual(r.incrby(n, 41), 42)
        self.assertEqual(r.decr(n), 41)
        self.assertEqual(r.incrbyfloat(n, 0.5), 41.5)
        self.assertEqual(r.append(n, "1"), 5)
        self.assertEqual(r.strlen(n), 5)

    def test_expiry(self):
        r, a = self.redis, self.key("a")
        r.set(a, "1", ex=100)
        self.assertIn(r.ttl(a), (99, 100))
        self.assertTrue(r.persist(a))
        self.assertEqual(r.ttl(a), -1)
        self.assertTrue(r.pexpire(a, 100000))
        self.assertGreater(r.pttl(a), 90000)
        self.assertTrue(r.expire(a, 1000, gt=True))
        self.assertEqual(r.ttl(self.key("none")), -2)

    def test_many_keys(self):
        r = self.redis
        pairs = {self.key("m%d" % nth): str(nth).encode() for nth in range(200)}
        self.assertTrue(r.mset(pairs))
        self.assertEqual(r.mget(list(pairs)), list(pairs.values()))
        self.assertEqual(r.exists(*pairs), 200)
        self.assertEqual(r.touch(*pairs), 200)
        self.assertEqual(r.unlink(*list(pairs)[:100]), 100)
        self.assertEqual(r.delete(*pairs), 100)

    def test_pipeline(self):
        with self.redis.pipeline(transaction=False) as pipe:
            for nth in range(1000):
                pipe.set(self.key("p%d" % nth), nth)
                pipe.get(self.key("p%d" % nth))
            replies = pipe.execute()
        self.assertEqual(replies[0::2], [True] * 1000)
        self.assertEqual(replies[1::2], [str(nth).encode() for nth in range(1000)])

    def test_an_error_in_a_pipeline_is_one_of_its_replies(self):
        a = self.key("a")
        self.redis.set(a, "text")
        with self.redis.pipeline(transaction=False) as pipe:
            pipe.get(a)
            pipe.incr(a)
            pipe.get(a)
            replies = pipe.execute(raise_on_error=False)
        self.assertEqual(replies[0], b"text")
        self.assertIsInstance(replies[1], redis.ResponseError)
        self.assertEqual(replies[2], b"text")

    def test_unknown_command_keeps_the_connection(self):
        with connect(single_connection_client=True) as r:
            identity = r.client_id()
            with self.assertRaises(redis.ResponseError):
                r.execute_command("NOSUCHCOMMAND", "x")
            self.assertEqual(r.client_id(), identity)

    def test_client_names_and_library_info(self):
        with connect(client_name="tester", single_connection_client=True) as r:
            # redis-py makes it text in RESP2 alone.
            self.assertIn(r.client_getname(), ("tester", b"tester"))
            self.assertTrue(r.client_setname("other"))
            self.assertIn(r.client_getname(), ("other", b"other"))
            self.assertIsInstance(r.client_info(), dict)
            self.assertGreater(len(r.client_list()), 0)

    def test_select_of_the_first_database(self):
        with connect(db=0, single_connection_client=True) as r:
            self.assertTrue(r.execute_command("SELECT", 0))
            r.set(self.key("a"), "1")
            self.assertEqual(r.get(self.key("a")), b"1")

    def test_server_information(self):
        r = self.redis
        self.assertIn("redis_version", r.info())
        self.assertEqual(len(r.time()), 2)
        self.assertIn("get", r.command())
        self.assertIsInstance(r.config_get("maxmemory"), dict)
        self.assertEqual(r.echo("hello"), b"hello")

    def test_binary_keys(self):
        key = self.key("x").encode() + bytes(range(256))
        self.redis.set(key, "1")
        self.assertEqual(self.redis.get(key), b"1")
        self.assertEqual(self.redis.type(key), b"string")

    def test_threads_share_a_pool(self):
        wrong = []

        def work(thread):
            for nth in range(200):
                key = self.key("t%d" % thread)
                self.redis.set(key, nth)
                if self.redis.get(key) != str(nth).encode():
                    wrong.append((thread, nth))

        threads = [threading.Thread(target=work, args=(nth,)) for nth in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_bits_and_ranges(self):
        r, a = self.redis, self.key("a")
        r.set(a, "foobar")
        self.assertEqual(r.bitcount(a), 26)
        self.assertEqual(r.getrange(a, 0, 2), b"foo")
        self.assertEqual(r.setrange(a, 3, "BAR"), 6)
        self.assertEqual(r.setbit(a, 0, 1), 0)
        self.assertEqual(r.getbit(a, 0), 1)


class Store(unittest.TestCase):
    @unittest.skipUnless(KIND == "store", "commands about all keys")
    def test_scan(self):
        r = connect()
        keys = {b"py:scan:%d" % nth for nth in range(500)}
        r.mset({key: "1" for key in keys})
        self.assertEqual(set(r.scan_iter("py:scan:*")), keys)
        self.assertGreaterEqual(r.dbsize(), 500)
        r.delete(*keys)


class Sharded(unittest.TestCase):
    @unittest.skipIf(KIND == "store", "types only a server has")
    def test_other_types(self):
        r, base = connect(), "py:%s:types:" % KIND
        r.delete(base + "l", base + "h", base + "s", base + "z")
        self.assertEqual(r.rpush(base + "l", "a", "b"), 2)
        self.assertEqual(r.lrange(base + "l", 0, -1), [b"a", b"b"])
        self.assertEqual(r.hset(base + "h", mapping={"f": "1", "g": "2"}), 2)
        self.assertEqual(r.hgetall(base + "h"), {b"f": b"1", b"g": b"2"})
        self.assertEqual(r.sadd(base + "s", "x", "y"), 2)
        self.assertEqual(r.smembers(base + "s"), {b"x", b"y"})
        self.assertEqual(r.zadd(base + "z", {"m": 1.5}), 1)
        self.assertEqual(r.zrange(base + "z", 0, -1, withscores=True), [(b"m", 1.5)] if PROTOCOL == 2 else [[b"m", 1.5]])

    @unittest.skipIf(KIND == "store", "scripts")
    def test_scripts_with_a_key(self):
        r = connect()
        self.assertEqual(r.eval("return KEYS[1]", 1, "py:script"), b"py:script")

    @unittest.skipIf(KIND == "store", "scripts")
    def test_registered_scripts(self):
        r = connect()
        add = r.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
        keys = ["py:%s:registered:%d" % (KIND, nth) for nth in range(50)]
        r.delete(*keys)
        with r.pipeline(transaction=False) as pipeline:
            for key in keys:
                add(keys=[key], args=[2], client=pipeline)
            self.assertEqual(pipeline.execute(), [2] * 50)
        self.assertEqual(r.script_exists(add.sha), [True])
        self.assertEqual([add(keys=[key], args=[1]) for key in keys], [3] * 50)
        r.delete(*keys)

    @unittest.skipIf(KIND == "store", "servers")
    def test_scan_over_all_servers(self):
        r = connect()
        base = "py:%s:walk:" % KIND
        keys = {(base + str(nth)).encode() for nth in range(500)}
        r.mset({key: "1" for key in keys})
        self.assertEqual(set(r.scan_iter(base + "*", count=50)), keys)
        self.assertEqual(set(r.keys(base + "*")), keys)
        r.delete(*keys)

    @unittest.skipUnless(KIND == "sharded", "keys on several servers")
    def test_across_servers_is_refused_with_a_hint(self):
        r = connect()
        with self.assertRaisesRegex(redis.ResponseError, "(?i)crossslot|hash tag|servers"):
            for nth in range(50):
                r.execute_command("SINTER", "py:x:0", "py:x:%d" % nth)


class Password(unittest.TestCase):
    @unittest.skipUnless(KIND == "password", "a pool with a password")
    def test_nothing_works_before_auth(self):
        r = redis.Redis(host="127.0.0.1", port=PORT, socket_timeout=10)
        with self.assertRaises(redis.AuthenticationError):
            r.get("a")
        r = redis.Redis(host="127.0.0.1", port=PORT, password="wrong", socket_timeout=10)
        with self.assertRaises(redis.AuthenticationError):
            r.get("a")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
