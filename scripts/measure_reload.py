#!/usr/bin/env python3
"""Latency of pipelines, each reply checked, before and while the configuration is reloaded.

    python3 scripts/measure_reload.py path/to/keyway

Starts a redis-server and a Keyway with one pool, whose servers are that one under several
names, and reloads it 20 times, once in 1.2 s, each time with other servers or weights.
"""

import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HOSTS = ["127.0.0.1", "localhost", "LOCALHOST", "Localhost"]
WEIGHTS = [[1, 1], [1, 3], [1, 1, 2], [2]]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def encode(*words):
    parts = [f"*{len(words)}\r\n"] + [f"${len(word)}\r\n{word}\r\n" for word in words]
    return "".join(parts).encode()


def reply(file):
    line = file.readline()
    if not line:
        raise EOFError
    if line[:1] != b"$":
        return line.strip()
    length = int(line[1:])
    return None if length < 0 else file.read(length + 2)[:-2]


class Load:
    """Clients that write and read their own keys until they are told to stop."""

    def __init__(self, port):
        self.port, self.is_over, self.wrong, self.latencies = port, False, [], []
        self.threads = [threading.Thread(target=self.run, args=(at,)) for at in range(4)]
        for thread in self.threads:
            thread.start()

    def run(self, number):
        stream = socket.create_connection(("127.0.0.1", self.port), timeout=15)
        file, known, turn = stream.makefile("rb"), {}, 0
        while not self.is_over:
            turn += 1
            batch, expected = [], []
            for step in range(1 + turn % 7):
                key = f"k{number}-{(turn * 3 + step) % 20}"
                if (turn + step) % 2:
                    known[key] = f"{turn}-{step}".encode()
                    batch.append(encode("SET", key, known[key].decode()))
                    expected.append(b"+OK")
                else:
                    batch.append(encode("GET", key))
                    expected.append(known.get(key))
            began = time.perf_counter()
            stream.sendall(b"".join(batch))
            self.wrong += [it for it in expected if reply(file) != it]
            self.latencies.append((began, time.perf_counter() - began))

    def stop(self):
        self.is_over = True
        for thread in self.threads:
            thread.join()

    def show(self, name, begin, end):
        took = sorted(took for began, took in self.latencies if begin <= began < end)
        at = [1000 * took[int(len(took) * share)] for share in (0.5, 0.99, 0.999)]
        print(f"{name}: {len(took)} pipelines, p50 {at[0]:.2f} p99 {at[1]:.2f} p99.9 {at[2]:.2f} ms")


def main():
    redis, keyway = free_port(), free_port()
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, "keyway.toml")

        def write(weights):
            servers = [f'"{h}:{redis}:{w} s{i}"' for i, (w, h) in enumerate(zip(weights, HOSTS))]
            file.write_text(
                '[server]\nadmin = "off"\nworkers = 2\ndrain_timeout = "1s"\n'
                f'[[listener]]\nbind = "tcp://127.0.0.1:{keyway}"\npool = "main"\n'
                f'[pool.main]\nkind = "sharded"\nservers = [{", ".join(servers)}]\n'
            )

        write([1])
        processes = []
        load = None
        try:
            redis_server = ["redis-server", "--port", str(redis), "--save", "", "--dir", directory]
            processes.append(subprocess.Popen(redis_server, stdout=subprocess.DEVNULL))
            proxy = subprocess.Popen([sys.argv[1], "serve", file], stderr=subprocess.DEVNULL)
            processes.append(proxy)
            time.sleep(1)
            load = Load(keyway)
            began = time.perf_counter()
            time.sleep(5)
            first = time.perf_counter()
            for turn in range(20):
                write(WEIGHTS[turn % len(WEIGHTS)])
                proxy.send_signal(signal.SIGHUP)
                time.sleep(1.2)
            load.show("before", began + 1, first)
            load.show("while 20 reloads", first, time.perf_counter())
        finally:
            if load:
                load.stop()
            for process in reversed(processes):
                process.terminate()
                process.wait()
        print(f"wrong replies: {len(load.wrong)}")


if __name__ == "__main__":
    main()
