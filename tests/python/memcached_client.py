"""What users of pymemcache and pylibmc do every day: memcached_client.py PORT.

Run against a bare memcached it must pass as well.
"""

import sys
import unittest

import pylibmc
from pymemcache.client.base import Client, PooledClient
from pymemcache.client.retrying import RetryingClient
from pymemcache.exceptions import MemcacheClientError, MemcacheIllegalInputError, MemcacheServerError
from pymemcache.serde import pickle_serde

ADDRESS = ("127.0.0.1", int(sys.argv.pop(1)))


class Pymemcache(unittest.TestCase):
    def setUp(self):
        self.client = Client(ADDRESS, timeout=10, connect_timeout=10, serde=pickle_serde, key_prefix=b"py:")
        self.addCleanup(self.client.close)

    def test_values_of_any_type(self):
        for value in ("text", b"bytes", 5, 2.5, ["a", {"b": None}], "ü" * 1000, b"x" * 900_000):
            self.assertTrue(self.client.set("value", value))
            self.assertEqual(self.client.get("value"), value)
        self.assertIsNone(self.client.get("none"))
        self.assertEqual(self.client.get("none", "else"), "else")

    def test_conditional_writes(self):
        self.client.delete("c", noreply=False)
        self.assertFalse(self.client.replace("c", "x", noreply=False))
        self.assertTrue(self.client.add("c", "a", noreply=False))
        self.assertFalse(self.client.add("c", "b", noreply=False))
        self.assertTrue(self.client.replace("c", "b", noreply=False))
        self.assertTrue(self.client.delete("c", noreply=False))
        self.assertFalse(self.client.delete("c", noreply=False))

    def test_append_and_prepend(self):
        raw = Client(ADDRESS, timeout=10)
        self.addCleanup(raw.close)
        raw.set("joined", b"b", noreply=False)
        self.assertTrue(raw.append("joined", b"c", noreply=False))
        self.assertTrue(raw.prepend("joined", b"a", noreply=False))
        self.assertEqual(raw.get("joined"), b"abc")
        self.assertFalse(raw.append("joined:none", b"c", noreply=False))

    def test_cas(self):
        self.client.set("cas", "a", noreply=False)
        value, cas = self.client.gets("cas")
        self.assertEqual(value, "a")
        self.assertIs(self.client.cas("cas", "b", cas, noreply=False), True)
        self.assertIs(self.client.cas("cas", "c", cas, noreply=False), False)
        self.assertIsNone(self.client.cas("cas:none", "c", cas, noreply=False))

    def test_many_keys(self):
        wanted = {"many:%d" % nth: nth for nth in range(200)}
        self.assertEqual(self.client.set_many(wanted, noreply=False), [])
        self.assertEqual(self.client.get_many(list(wanted) + ["many:none"]), wanted)
        self.assertEqual(len(self.client.gets_many(list(wanted))), 200)
        self.assertTrue(self.client.delete_many(list(wanted), noreply=False))
        self.assertEqual(self.client.get_many(list(wanted)), {})

    def test_counters(self):
        self.client.delete("n", noreply=False)
        self.assertIsNone(self.client.incr("n", 1))
        raw = Client(ADDRESS, timeout=10, key_prefix=b"py:")
        self.addCleanup(raw.close)
        raw.set("n", b"10", noreply=False)
        self.assertEqual(raw.incr("n", 5), 15)
        self.assertEqual(raw.decr("n", 20), 0)
        raw.set("n", b"words", noreply=False)
        with self.assertRaises(MemcacheClientError):
            raw.incr("n", 1)
        self.assertEqual(raw.get("n"), b"words", "the connection goes on")

    def test_expiry(self):
        self.client.set("gone", "x", expire=-1, noreply=False)
        self.assertIsNone(self.client.get("gone"))
        self.client.set("kept", "x", expire=100, noreply=False)
        self.assertTrue(self.client.touch("kept", 1000, noreply=False))
        self.assertFalse(self.client.touch("touch:none", 1000, noreply=False))
        self.assertEqual(self.client.get("kept"), "x")

    def test_what_is_wrong(self):
        with self.assertRaises(MemcacheIllegalInputError):
            self.client.get("a key with blanks")
        with self.assertRaises(MemcacheServerError):
            self.client.set("large", b"x" * (2 << 20), noreply=False)
        self.assertTrue(self.client.set("small", "x", noreply=False))

    def test_about_the_server(self):
        self.assertTrue(self.client.version().startswith(b"1."))
        self.assertIn(b"curr_items", self.client.stats())

    def test_noreply_is_the_default_of_most_writes(self):
        client = Client(ADDRESS, timeout=10, default_noreply=True)
        self.addCleanup(client.close)
        for nth in range(200):
            client.set("quiet:%d" % nth, str(nth))
        self.assertEqual(client.get("quiet:199"), b"199")

    def test_a_pool_of_connections(self):
        pool = RetryingClient(PooledClient(ADDRESS, max_pool_size=4, timeout=10), attempts=2)
        for nth in range(50):
            self.assertTrue(pool.set("pooled", str(nth), noreply=False))
            self.assertEqual(pool.get("pooled"), str(nth).encode())
        pool.close()


class Pylibmc:
    """The same for text and for packets."""

    binary = False

    def setUp(self):
        behaviors = {"tcp_nodelay": True, "cas": True}
        self.client = pylibmc.Client(["%s:%d" % ADDRESS], binary=self.binary, behaviors=behaviors)
        self.addCleanup(self.client.disconnect_all)
        self.prefix = "lib:%s:" % self.binary

    def key(self, name):
        return self.prefix + str(name)

    def test_values_of_any_type(self):
        for value in ("text", b"bytes", 5, True, 2.5, ["a", {"b": None}], b"x" * 900_000):
            self.assertTrue(self.client.set(self.key("value"), value))
            self.assertEqual(self.client.get(self.key("value")), value)
        self.assertIsNone(self.client.get(self.key("none")))

    def test_compressed_values(self):
        value = "again and again " * 1000
        self.assertTrue(self.client.set(self.key("z"), value, min_compress_len=100))
        self.assertEqual(self.client.get(self.key("z")), value)

    def test_conditional_writes(self):
        key = self.key("c")
        self.client.delete(key)
        # libmemcached tells of this in other words with each protocol.
        try:
            self.assertFalse(self.client.replace(key, "x"))
        except pylibmc.NotFound:
            self.assertTrue(self.binary)
        self.assertTrue(self.client.add(key, "a"))
        self.assertFalse(self.client.add(key, "b"))
        self.assertTrue(self.client.replace(key, "b"))
        self.assertTrue(self.client.append(key, "c"))
        self.assertTrue(self.client.prepend(key, "a"))
        self.assertEqual(self.client.get(key), "abc")
        self.assertTrue(self.client.delete(key))
        self.assertFalse(self.client.delete(key))

    def test_cas(self):
        key = self.key("cas")
        self.client.set(key, "a")
        value, cas = self.client.gets(key)
        self.assertEqual(value, "a")
        self.assertTrue(self.client.cas(key, "b", cas))
        self.assertFalse(self.client.cas(key, "c", cas))
        self.assertEqual(self.client.get(key), "b")

    def test_many_keys(self):
        wanted = {self.key("many:%d" % nth): nth for nth in range(200)}
        self.assertEqual(self.client.set_multi(wanted), [])
        self.assertEqual(self.client.get_multi(list(wanted) + [self.key("no")]), wanted)
        self.assertTrue(self.client.delete_multi(list(wanted)))
        self.assertEqual(self.client.get_multi(list(wanted)), {})
        shorter = {"p:%d" % nth: nth for nth in range(20)}
        self.assertEqual(self.client.set_multi(shorter, key_prefix=self.prefix), [])
        self.assertEqual(self.client.get_multi(list(shorter), key_prefix=self.prefix), shorter)

    def test_counters(self):
        key = self.key("n")
        self.client.delete(key)
        with self.assertRaises(pylibmc.NotFound):
            self.client.incr(key)
        self.client.set(key, 10)
        self.assertEqual(self.client.incr(key, 5), 15)
        self.assertEqual(self.client.decr(key, 20), 0)
        self.assertEqual(self.client.get(key), 0)

    def test_expiry(self):
        key = self.key("kept")
        self.client.set(key, "x", time=100)
        self.assertTrue(self.client.touch(key, 1000))
        self.assertFalse(self.client.touch(self.key("touch:none"), 1000))

    def test_about_the_server(self):
        stats = self.client.get_stats()
        self.assertEqual(len(stats), 1)
        self.assertIn(b"curr_items", {name.encode() if isinstance(name, str) else name for name in stats[0][1]})


class PylibmcText(Pylibmc, unittest.TestCase):
    pass


class PylibmcBinary(Pylibmc, unittest.TestCase):
    binary = True


if __name__ == "__main__":
    unittest.main()
