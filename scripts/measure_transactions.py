#!/usr/bin/env python3
"""CPU that keyway uses for a transaction of five SETs, against five pipelined
SETs: measure_transactions.py KEYWAY-BINARY [ROUNDS]. Starts four redis-servers
and keyway on free loopback ports, and prints one line per round."""

import glob
import socket
import statistics
import subprocess
import sys
import tempfile
import time

CLIENTS = 20
BATCHES = 800


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


def encode(*words):
    bulks = (word.encode() for word in words)
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(b), b) for b in bulks)


def cpu_nanos(pid):
    tasks = glob.glob(f"/proc/{pid}/task/*/schedstat")
    return sum(int(open(task).read().split()[0]) for task in tasks)


def sets(client):
    return b"".join(encode("SET", f"{{t{client}}}k{nth}", "x" * 64) for nth in range(5))


def pipelined(client):
    return sets(client), 5 * len("+OK\r\n")


def transaction(client):
    request = encode("MULTI") + sets(client) + encode("EXEC")
    return request, len("+OK\r\n") + 5 * len("+QUEUED\r\n") + len("*5\r\n") + 5 * len("+OK\r\n")


def nanos_per_batch(pid, sockets, batch):
    batches = [batch(client) for client in range(len(sockets))]
    start = cpu_nanos(pid)
    for _ in range(BATCHES):
        for sock, (request, _) in zip(sockets, batches):
            sock.sendall(request)
        for sock, (_, reply_len) in zip(sockets, batches):
            while reply_len > 0:
                got = len(sock.recv(65536))
                if got == 0:
                    raise SystemExit("keyway closed a connection")
                reply_len -= got
    return (cpu_nanos(pid) - start) / (BATCHES * len(sockets))


def main():
    binary, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7
    ports = [free_port() for _ in range(4)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    children = []
    with tempfile.TemporaryDirectory() as directory:
        try:
            for port in ports:
                command = ["redis-server", "--port", str(port), "--save", "", "--dir", directory]
                children.append(subprocess.Popen(command, **quiet))
                wait_for(port)
            own = free_port()
            servers = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
            config = f"{directory}/keyway.toml"
            with open(config, "w") as file:
                file.write(
                    "[server]\nworkers = 1\nadmin = \"off\"\n[[listener]]\n"
                    f'bind = "tcp://127.0.0.1:{own}"\npool = "main"\n[pool.main]\n'
                    f'kind = "sharded"\nhash_tag = "{{}}"\nservers = [{servers}]\n'
                )
            keyway = subprocess.Popen([binary, "serve", config], **quiet)
            children.append(keyway)
            wait_for(own)
            sockets = [socket.create_connection(("127.0.0.1", own)) for _ in range(CLIENTS)]
            ratios = []
            for _ in range(rounds):
                plain = nanos_per_batch(keyway.pid, sockets, pipelined)
                whole = nanos_per_batch(keyway.pid, sockets, transaction)
                ratios.append(whole / plain)
                print(f"pipelined {plain:.0f} ns, transaction {whole:.0f} ns: {whole / plain:.2f}")
            print(f"median ratio {statistics.median(ratios):.2f}")
        finally:
            for child in children:
                child.terminate()
                child.wait()


main()
