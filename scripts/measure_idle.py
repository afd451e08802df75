#!/usr/bin/env python3
"""What connections at rest hold of Keyway's memory.

    scripts/measure_idle.py KEYWAY [CONNECTIONS]

A store and a pool of one redis-server, each in a process of its own, with 10,000 connections:
before they ask anything, after one GET of each, one after the other, and after all have asked
before the first is read. Of RSS, divided by the connections.
"""

import resource
import socket
import subprocess
import sys
import tempfile
import time

GET = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def connected(port):
    for _ in range(500):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.02)
    raise SystemExit(f"nobody listens at {port}")


def resident(process):
    with open(f"/proc/{process.pid}/status") as file:
        line = next(line for line in file if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def answer(client):
    left = b"$1\r\n1\r\n"
    while left:
        left = left[len(client.recv(len(left))):]


def measure(keyway, name, port, pool, count):
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/keyway.toml", "w") as file:
            file.write(f'[server]\nadmin = "off"\nworkers = 1\n[limits]\nclients_max = {2 * count}\n')
            file.write(f'[[listener]]\nbind = "tcp://127.0.0.1:{port}"\npool = "main"\n')
            file.write(f"[pool.main]\n{pool}\n")
        process = subprocess.Popen([keyway, "serve", f"{folder}/keyway.toml"],
                                   stderr=subprocess.DEVNULL)
        clients = []
        try:
            first = connected(port)
            first.sendall(b"SET a 1\r\n")
            first.recv(100)
            before = resident(process)
            clients += [connected(port) for _ in range(count)]
            time.sleep(1)
            steps = [resident(process)]
            for client in clients:
                client.sendall(GET)
                answer(client)
            steps.append(resident(process))
            for client in clients:
                client.sendall(GET)
            for client in clients:
                answer(client)
            steps.append(resident(process))
            each = [(step - before) // count for step in steps]
            print(f"{name}: {each[0]} bytes each, {each[1]} after a GET, {each[2]} after all at once")
        finally:
            for client in clients:
                client.close()
            process.terminate()
            process.wait()


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = free_port()
    redis = subprocess.Popen(["redis-server", "--port", str(server), "--save", ""],
                             stdout=subprocess.DEVNULL)
    try:
        connected(server).close()
        servers = f'kind = "sharded"\nservers = ["127.0.0.1:{server}:1"]'
        measure(sys.argv[1], "store", free_port(), 'kind = "store"', count)
        measure(sys.argv[1], "pool of servers", free_port(), servers, count)
    finally:
        redis.terminate()
        redis.wait()


if __name__ == "__main__":
    main()
