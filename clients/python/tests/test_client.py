"""The package against a server whose URL is in KEYWAY_URL; KEYWAY_TRANSPORT says what must carry it."""

import contextlib
import enum
import os
import signal
import socket
import tempfile
import threading
import time
import unittest

import keyway
from keyway.redis_py import pool
import redis

URL = os.environ["KEYWAY_URL"]
TRANSPORT = os.environ["KEYWAY_TRANSPORT"]


class Alarm(Exception):
    pass


@contextlib.contextmanager
def alarm(seconds):
    """A signal in so many seconds, whose handler raises Alarm."""

    def ring(_number, _frame):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def server_of_one(serve):
    """The URL of a server of one connection, which does `serve` with it."""
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
        path = f"{directory}/one.sock"
        listener.bind(path)
        listener.listen()

        def accept():
            with listener.accept()[0] as one, contextlib.suppress(OSError):
                serve(one)

        serving = threading.Thread(target=accept, daemon=True)
        serving.start()
        yield f"unix://{path}"
        serving.join(20)


def echo(one):
    """Reads nothing before what it has read is sent back."""
    while data := one.recv(1 << 16):
        one.sendall(data)


class Number(enum.IntEnum):
    SEVEN = 7


class Shown(float):
    def __repr__(self):
        return f"Shown({float(self)})"


class ConnectionTest(unittest.TestCase):
    def setUp(self):
        self.connection = keyway.Connection(URL, timeout=20)
        self.addCleanup(self.connection.close)
        self.connection.command("DEL", "k", "n", "l", "h", "z")

    def test_it_is_carried_by_what_was_asked_for(self):
        self.assertEqual(self.connection.transport, TRANSPORT)

    def test_replies_are_values(self):
        say = self.connection.command
        self.assertEqual(say("SET", "k", b"a\0b"), "OK")
        self.assertEqual(say("GET", "k"), b"a\0b")
        self.assertEqual(say("SET", "k", "\u00e4"), "OK")
        self.assertEqual(say("GET", bytearray(b"k")), "\u00e4".encode())
        self.assertIsNone(say("GET", "none"))
        self.assertEqual(say("INCRBY", "n", 7), 7)
        self.assertEqual(say("INCRBYFLOAT", "n", 0.5), b"7.5")
        say("RPUSH", "l", 1, 2)
        self.assertEqual(say("LRANGE", "l", 0, -1), [b"1", b"2"])
        say("HELLO", 3)
        say("HSET", "h", "f", "v")
        self.assertEqual(say("HGETALL", "h"), {b"f": b"v"})
        say("ZADD", "z", 1.5, "m")
        self.assertEqual(say("ZSCORE", "z", "m"), 1.5)

    def test_errors_are_raised_and_leave_the_connection(self):
        with self.assertRaisesRegex(keyway.ReplyError, "^WRONGTYPE"):
            self.connection.pipeline([("SET", "k", "v")])
            self.connection.command("LPUSH", "k", "v")
        with self.assertRaises(keyway.ReplyError):
            self.connection.command()
        with self.assertRaisesRegex(TypeError, "not NoneType"):
            self.connection.command("GET", None)
        with self.assertRaisesRegex(TypeError, "not bool"):
            self.connection.command("SET", "k", True)
        self.assertEqual(self.connection.command("GET", "k"), b"v")

    def test_pipelines_are_answered_in_order(self):
        large = b"v" * 300_000
        commands = [("SET", "k", large), ("LPUSH", "k", 1)] + [("GET", "k")] * 50
        replies = self.connection.pipeline(commands)
        self.assertEqual(replies[0], "OK")
        self.assertIsInstance(replies[1], keyway.ReplyError)
        self.assertEqual(replies[2:], [large] * 50)

    def test_messages_are_received(self):
        listener = keyway.Connection(URL, timeout=20)
        self.addCleanup(listener.close)
        listener.send("SUBSCRIBE", "news")
        self.assertEqual(listener.receive(), [b"subscribe", b"news", 1])
        self.connection.command("PUBLISH", "news", "paper")
        self.assertEqual(listener.receive(), [b"message", b"news", b"paper"])

    def test_numbers_of_other_kinds_are_their_digits(self):
        self.assertEqual(self.connection.command("INCRBY", "n", Number.SEVEN), 7)
        self.assertEqual(self.connection.command("INCRBYFLOAT", "n", Shown(0.5)), b"7.5")

    def test_what_is_sent_is_sent_at_once(self):
        listener = keyway.Connection(URL, timeout=20)
        self.addCleanup(listener.close)
        listener.send("SUBSCRIBE", "papers")
        end = time.monotonic() + 10
        while self.connection.command("PUBLISH", "papers", "x") == 0:
            self.assertLess(time.monotonic(), end, "it is not sent")
        self.assertEqual(listener.receive()[0], b"subscribe")
        self.assertEqual(listener.receive()[2], b"x")

    def test_messages_between_replies_are_received(self):
        self.connection.command("HELLO", 3)
        self.connection.send("SUBSCRIBE", "k")
        self.assertEqual(self.connection.receive(), [b"subscribe", b"k", 1])
        other = keyway.Connection(URL, timeout=20)
        self.addCleanup(other.close)
        other.command("PUBLISH", "k", "x")
        self.assertEqual(self.connection.command("ECHO", "y"), b"y")
        self.assertEqual(self.connection.receive(), [b"message", b"k", b"x"])

    def test_a_signal_ends_a_wait(self):
        for wait in [
            lambda: self.connection.command("BLPOP", "nothing", 0),
            lambda: self.connection.pipeline([("PING",), ("BLPOP", "nothing", 0)]),
        ]:
            start = time.monotonic()
            with self.assertRaises(Alarm), alarm(0.2):
                wait()
            self.assertLess(time.monotonic() - start, 5)
            # The reply to that would be taken for another's.
            with self.assertRaises(ConnectionError):
                self.connection.command("PING")
            self.connection = keyway.Connection(URL, timeout=20)
            self.addCleanup(self.connection.close)
        with self.assertRaises(Alarm), alarm(0.2):
            self.connection.receive()
        self.assertEqual(self.connection.command("PING"), "PONG")

    def test_a_signal_ends_a_log_in(self):
        with server_of_one(lambda one: one.recv(100) and one.recv(100)) as url:
            start = time.monotonic()
            with self.assertRaises(Alarm), alarm(0.2):
                keyway.Connection(url, password="secret")
            self.assertLess(time.monotonic() - start, 5)

    def test_nobody_waits_behind_who_waits(self):
        raised = []

        def wait():
            try:
                self.connection.command("BLPOP", "nothing", 0)
            except ConnectionError as error:
                raised.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.1)
        start = time.monotonic()
        self.assertEqual(self.connection.transport, TRANSPORT)
        with self.assertRaises(Alarm), alarm(0.2):
            self.connection.command("PING")
        self.connection.close()
        waiting.join(10)
        self.assertFalse(waiting.is_alive())
        self.assertLess(time.monotonic() - start, 5)
        self.assertIn("closed", str(raised[0]))

    def test_threads_take_turns(self):
        def count():
            for _ in range(200):
                self.connection.command("INCR", "n")

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.connection.command("GET", "n"), b"800")

    def test_the_timeout_is_since_the_server_did_something(self):
        def trickle(one):
            one.recv(100)
            for byte in b"+PONG\r\n":
                time.sleep(0.15)
                one.sendall(bytes([byte]))
            one.recv(100)
            time.sleep(2)

        with server_of_one(trickle) as url, keyway.Connection(url, timeout=0.45) as connection:
            self.assertEqual(connection.command("PING"), "PONG")
            start = time.monotonic()
            with self.assertRaises(TimeoutError):
                connection.command("PING")
            waited = time.monotonic() - start
            self.assertGreaterEqual(waited, 0.45)
            self.assertLess(waited, 1)

    def test_a_user_without_a_password_is_told(self):
        with self.assertRaisesRegex(keyway.ReplyError, "without a password"):
            keyway.Connection(URL, username="u")

    def test_waits_end_in_time_and_other_threads_go_on(self):
        waiting = keyway.Connection(URL, timeout=0.3)
        ran = threading.Event()
        threading.Timer(0.05, ran.set).start()
        start = time.monotonic()
        with self.assertRaises(TimeoutError):
            waiting.command("BLPOP", "nothing", 0)
        self.assertLess(time.monotonic() - start, 5)
        self.assertTrue(ran.is_set())
        with self.assertRaises(ConnectionError):
            waiting.command("PING")

    def test_a_wait_for_messages_can_be_short(self):
        listener = keyway.Connection(URL, timeout=0.2)
        self.addCleanup(listener.close)
        listener.send("SUBSCRIBE", "news")
        self.assertEqual(listener.receive(within=20), [b"subscribe", b"news", 1])
        for within in [0, 0.3]:
            start = time.monotonic()
            with self.assertRaisesRegex(TimeoutError, "nothing has come in time"):
                listener.receive(within=within)
            self.assertGreaterEqual(time.monotonic() - start, within)
        with self.assertRaises(Alarm), alarm(0.2):
            listener.receive(within=20)
        with self.assertRaises(ValueError):
            listener.receive(within=-1)
        self.connection.command("PUBLISH", "news", "x")
        self.assertEqual(listener.receive(within=20), [b"message", b"news", b"x"])
        closing = threading.Timer(0.2, listener.close)
        closing.start()
        with self.assertRaises(ConnectionError):
            listener.receive(within=20)
        closing.join()

    def test_a_text_is_no_command_of_a_pipeline(self):
        for text in ["PING", b"PING"]:
            with self.assertRaisesRegex(TypeError, "a list of arguments"):
                self.connection.pipeline([("PING",), text])
        self.assertEqual(self.connection.pipeline([["PING"], ("ECHO", "x")]), ["PONG", b"x"])

    def test_what_a_child_inherits_is_its_parents(self):
        self.connection.command("SET", "k", "v")
        stream = keyway.Stream(URL)
        self.addCleanup(stream.close)
        waiting = threading.Thread(target=lambda: self.connection.command("BLPOP", "l", 0))
        waiting.start()
        time.sleep(0.1)

        def as_child():
            said = []
            for use in [
                lambda: self.connection.command("PING"),
                lambda: self.connection.receive(within=0),
                lambda: stream.sendall(b"PING\r\n"),
            ]:
                try:
                    use()
                except OSError as error:
                    said.append(str(error))
            with keyway.Connection(URL) as own:
                own.command("RPUSH", "l", "1")
            self.connection.close()
            stream.close()
            return len(said) == 3 and all("open another here" in one for one in said)

        child = os.fork()
        if child == 0:
            signal.alarm(20)
            status = 1
            try:
                status = 0 if as_child() else 2
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        waiting.join(20)
        self.assertFalse(waiting.is_alive())
        self.assertEqual(self.connection.command("GET", "k"), b"v")
        stream.sendall(b"PING\r\n")
        self.assertEqual(stream.recv(100), b"+PONG\r\n")

    def test_what_is_closed_is_closed(self):
        with keyway.Connection(URL) as connection:
            connection.command("PING")
        with self.assertRaises(ConnectionError):
            connection.command("PING")
        connection.close()

    def test_wrong_urls_are_told(self):
        for url in ["redis://a:1", "nowhere", "tcp://a", "unix://a"]:
            with self.assertRaises(ValueError):
                keyway.Connection(url)
        with self.assertRaises(ConnectionError):
            keyway.Connection("unix:///nowhere/at.all")
        with self.assertRaises(ValueError):
            keyway.Connection(URL, timeout=-1)


class RefusedTest(unittest.TestCase):
    def test_who_is_given_no_memory_is_told_once(self):
        def refuse(one):
            one.recv(32)
            one.sendall(b"\0KWSHM1!\1" + bytes(23))
            one.recv(64)
            one.sendall(b"+PONG\r\n")

        with server_of_one(refuse) as url:
            url = url.replace("unix:", "shm:")
            with self.assertLogs("keyway", "WARNING") as told, keyway.Connection(url) as connection:
                self.assertEqual(connection.command("PING"), "PONG")
                self.assertEqual(connection.transport, "unix")
                self.assertIn("may not share memory", connection.refusal)
        self.assertEqual(len(told.output), 1)
        self.assertIn("its unix socket is used instead", told.output[0])
        # The same path again, as another process of it.
        with self.assertNoLogs("keyway"):
            self.assert_refused_again(url.removeprefix("shm://"), refuse)

    def assert_refused_again(self, path, refuse):
        os.makedirs(os.path.dirname(path))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()

            def accept():
                with listener.accept()[0] as one:
                    refuse(one)

            serving = threading.Thread(target=accept, daemon=True)
            serving.start()
            with contextlib.closing(keyway.Stream(f"shm://{path}")) as stream:
                stream.sendall(b"PING\r\n")
                self.assertEqual((stream.recv(64), stream.transport), (b"+PONG\r\n", "unix"))
                self.assertIn("may not share memory", stream.refusal)
            serving.join(20)
        os.unlink(path)
        os.rmdir(os.path.dirname(path))


class StreamTest(unittest.TestCase):
    def setUp(self):
        self.stream = keyway.Stream(URL)
        self.addCleanup(self.stream.close)

    def test_it_is_like_a_socket(self):
        self.assertEqual(self.stream.transport, TRANSPORT)
        self.stream.settimeout(0)
        with self.assertRaises(BlockingIOError):
            self.stream.recv(10)
        self.stream.settimeout(0.2)
        self.assertEqual(self.stream.gettimeout(), 0.2)
        with self.assertRaises(socket.timeout):
            self.stream.recv(10)
        self.stream.settimeout(20)
        self.stream.sendall(memoryview(b"PING\r\n"))
        self.assertEqual(self.stream.recv(100), b"+PONG\r\n")
        self.stream.sendall(b"PING\r\n")
        buffer = bytearray(10)
        self.assertEqual(self.stream.recv_into(buffer), 7)
        self.assertEqual(bytes(buffer), b"+PONG\r\n\0\0\0")
        self.stream.shutdown(socket.SHUT_RDWR)
        self.assertEqual(self.stream.recv(10), b"")
        self.stream.close()
        with self.assertRaises(OSError):
            self.stream.recv(10)

    def test_a_signal_ends_a_wait(self):
        start = time.monotonic()
        with self.assertRaises(Alarm), alarm(0.2):
            self.stream.recv(10)
        self.assertLess(time.monotonic() - start, 5)

    def test_no_time_is_none(self):
        self.stream.settimeout(0)
        start = time.monotonic()
        for _ in range(1000):
            with self.assertRaises(BlockingIOError):
                self.stream.recv(10)
        # At a millisecond each it would be a second.
        self.assertLess(time.monotonic() - start, 0.5)

    def test_who_closes_does_not_wait_for_who_waits(self):
        raised = []

        def wait():
            try:
                self.stream.recv(10)
            except OSError as error:
                raised.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.1)
        start = time.monotonic()
        self.assertEqual(self.stream.transport, TRANSPORT)
        self.stream.close()
        self.assertLess(time.monotonic() - start, 2)
        waiting.join(10)
        self.assertIn("closed", str(raised[0]))

    def test_much_is_sent_while_much_comes(self):
        with server_of_one(echo) as url:
            stream = keyway.Stream(url)
            stream.settimeout(2)
            data = os.urandom(8 << 20)
            stream.sendall(data)
            back = bytearray()
            while len(back) < len(data):
                back += stream.recv(100_000)
            self.assertEqual(bytes(back), data)
            # What is kept has a bound.
            with self.assertRaises(TimeoutError):
                stream.sendall(bytes(32 << 20))
            stream.close()


class RedisPyTest(unittest.TestCase):
    def test_redis_py_goes_over_it(self):
        for protocol in (2, 3):
            client = redis.Redis(connection_pool=pool(URL, protocol=protocol, socket_timeout=20))
            client.delete("k", "l")
            self.assertTrue(client.set("k", "v", ex=100))
            self.assertEqual(client.get("k"), b"v")
            with client.pipeline(transaction=True) as pipeline:
                pipeline.rpush("l", *range(1000)).lrange("l", 0, -1)
                self.assertEqual(len(pipeline.execute()[1]), 1000)
            with self.assertRaises(redis.ResponseError):
                client.lpush("k", 1)
            listener = client.pubsub(ignore_subscribe_messages=True)
            listener.subscribe("news")
            self.assertIsNone(listener.get_message(timeout=1))
            client.publish("news", "paper")
            message = None
            while message is None:
                message = listener.get_message(timeout=5)
            self.assertEqual(message["data"], b"paper")
            listener.close()
            client.connection_pool.disconnect()

    def test_nobody_there_is_told(self):
        client = redis.Redis(connection_pool=pool("unix:///nowhere/at.all", retry=None))
        with self.assertRaises(redis.ConnectionError):
            client.ping()


if __name__ == "__main__":
    unittest.main()
