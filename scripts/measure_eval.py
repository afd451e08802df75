#!/usr/bin/env python3
"""Requests per CPU-second of EVAL that reads a key, keyway's store against
redis-server: measure_eval.py KEYWAY-BINARY [ROUNDS]. Starts both on free
loopback ports, one worker each, and asks them by turns with redis-benchmark;
prints the figures of every round and their medians."""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

SCRIPT = "return redis.call('get',KEYS[1])"
REQUESTS = {1: 60_000, 16: 300_000}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_for(port):
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}")


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rate(port, pid, depth):
    """Requests per CPU-second of the server."""
    before = cpu_seconds(pid)
    subprocess.run(
        ["redis-benchmark", "-p", str(port), "-n", str(REQUESTS[depth]), "-P", str(depth), "-q",
         "EVAL", SCRIPT, "1", "k"],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return REQUESTS[depth] / (cpu_seconds(pid) - before)


def main():
    binary, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    folder = tempfile.mkdtemp()
    ports = {"keyway": free_port(), "redis-server": free_port()}
    config = f"{folder}/keyway.toml"
    with open(config, "w") as file:
        file.write(f"""[server]
workers = 1
admin = "off"
[[listener]]
bind = "tcp://127.0.0.1:{ports['keyway']}"
pool = "main"
[pool.main]
kind = "store"
memory_max = "1GiB"
""")
    commands = {
        "keyway": [binary, "serve", config],
        "redis-server": ["redis-server", "--port", str(ports["redis-server"]), "--save", ""],
    }
    null = subprocess.DEVNULL
    servers = {name: subprocess.Popen(words, stdout=null, stderr=null, cwd=folder)
               for name, words in commands.items()}
    try:
        for name, port in ports.items():
            wait_for(port)
            subprocess.run(["redis-cli", "-p", str(port), "SET", "k", "x" * 64],
                           check=True, stdout=null)
        for depth in REQUESTS:
            rates = {name: [] for name in servers}
            for _ in range(rounds):
                for name, server in servers.items():
                    rates[name].append(rate(ports[name], server.pid, depth))
                print(depth, {name: round(all[-1]) for name, all in rates.items()}, flush=True)
            medians = {name: statistics.median(all) for name, all in rates.items()}
            ratio = medians["keyway"] / medians["redis-server"]
            print(f"depth {depth}, medians:", {k: round(v) for k, v in medians.items()},
                  f"{ratio:.2f}x", flush=True)
    finally:
        for server in servers.values():
            server.terminate()
            server.wait()


main()
