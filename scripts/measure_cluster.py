#!/usr/bin/env python3
"""Two figures of proxies before a Redis Cluster that the comparison has no rows for:
requests per CPU-second of LRANGE of 600 elements, and voluntary context switches per
1000 requests of GET by 50 clients at depth 1.

measure_cluster.py KEYWAY-BINARY [PREDIXY-BINARY] [ROUNDS]. Starts a cluster of three
primaries, keyway and predixy (if given) with one worker each, on free loopback ports,
and loads them by turns with redis-benchmark."""

import glob
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
LISTS, GETS = 40_000, 200_000


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


def start_cluster(directory, children):
    ports = [free_port() for _ in range(3)]
    for port in ports:
        command = ["redis-server", "--port", str(port), "--save", "", "--dir", directory]
        command += ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]
        command += ["--cluster-config-file", f"nodes-{port}.conf"]
        children.append(subprocess.Popen(command, **QUIET))
        wait_for(port)
    nodes = [f"127.0.0.1:{port}" for port in ports]
    create = ["redis-cli", "--cluster", "create", *nodes, "--cluster-yes"]
    subprocess.run(create, check=True, **QUIET)
    for port in ports:
        while b"cluster_state:ok" not in ask(port, "cluster", "info"):
            time.sleep(0.1)
    return nodes


def ask(port, *words):
    command = ["redis-cli", "-p", str(port), *words]
    return subprocess.run(command, capture_output=True, check=True).stdout


def start_keyway(binary, nodes, directory, children):
    port = free_port()
    servers = ", ".join(f'"{node}"' for node in nodes)
    config = f"{directory}/keyway.toml"
    with open(config, "w") as file:
        file.write(
            "[server]\nworkers = 1\nadmin = \"off\"\n[[listener]]\n"
            f'bind = "tcp://127.0.0.1:{port}"\npool = "main"\n[pool.main]\n'
            f'kind = "cluster"\nservers = [{servers}]\n'
        )
    children.append(subprocess.Popen([binary, "serve", config], **QUIET))
    wait_for(port)
    return "keyway", port, children[-1].pid


def start_predixy(binary, nodes, directory, children):
    port = free_port()
    servers = "\n".join(f"+ {node}" for node in nodes)
    config = f"{directory}/predixy.conf"
    with open(config, "w") as file:
        file.write(
            f"Bind 127.0.0.1:{port}\nWorkerThreads 1\n"
            "Authority {\nAuth {\nMode admin\n}\n}\n"
            "ClusterServerPool {\nRefreshInterval 1\nServers {\n" + servers + "\n}\n}\n"
        )
    children.append(subprocess.Popen([binary, config], **QUIET))
    wait_for(port)
    return "predixy", port, children[-1].pid


def cpu_nanos(pid):
    tasks = glob.glob(f"/proc/{pid}/task/*/schedstat")
    return sum(int(open(task).read().split()[0]) for task in tasks)


def voluntary_switches(pid):
    text = "".join(open(task).read() for task in glob.glob(f"/proc/{pid}/task/*/status"))
    return sum(map(int, re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M)))


def load(port, requests, *words):
    command = ["redis-benchmark", "-p", str(port), "-n", str(requests), "-c", "50", "-q", *words]
    subprocess.run(command, check=True, **QUIET)


def lists_per_second(port, pid):
    before = cpu_nanos(pid)
    load(port, LISTS, "lrange", "measured-list", "0", "599")
    return LISTS / (cpu_nanos(pid) - before) * 1e9


def switches_per_thousand(port, pid):
    before = voluntary_switches(pid)
    load(port, GETS, "-r", "100000", "get", "key:__rand_int__")
    return (voluntary_switches(pid) - before) / GETS * 1000


def measure(proxies, rounds):
    lists, switches = ({name: [] for name, _, _ in proxies} for _ in range(2))
    for _ in range(rounds):
        for name, port, pid in proxies:
            lists[name].append(lists_per_second(port, pid))
            switches[name].append(switches_per_thousand(port, pid))
            print(f"{name}: LRANGE {lists[name][-1]:.0f} per CPU-second, "
                  f"{switches[name][-1]:.0f} voluntary switches per 1000 GETs", flush=True)
    for name in lists:
        print(f"{name}: median {statistics.median(lists[name]):.0f} LRANGE per CPU-second, "
              f"{statistics.median(switches[name]):.0f} voluntary switches per 1000 GETs")
    if "predixy" in lists:
        pairs = zip(lists["keyway"], lists["predixy"])
        print(f"LRANGE, keyway to predixy: {statistics.median(k / p for k, p in pairs):.2f}")


def main():
    binaries = [word for word in sys.argv[1:] if not word.isdigit()]
    rounds = next((int(word) for word in sys.argv[1:] if word.isdigit()), 5)
    children = []
    with tempfile.TemporaryDirectory() as directory:
        try:
            nodes = start_cluster(directory, children)
            proxies = [start_keyway(binaries[0], nodes, directory, children)]
            if len(binaries) > 1:
                proxies.append(start_predixy(binaries[1], nodes, directory, children))
            ask(proxies[0][1], "rpush", "measured-list", *(f"{nth:03}" for nth in range(600)))
            measure(proxies, rounds)
        finally:
            for child in reversed(children):
                child.terminate()
                child.wait()


main()
