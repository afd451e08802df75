#!/usr/bin/env python3
"""Requests per second of processor time of Keyway, plain and by TLS, by turns.

    scripts/measure_tls.py KEYWAY [ROUNDS [REQUESTS]]

50 clients of redis-benchmark ask for values of 64 bytes of the embedded store, at depth 16
and 1, on two listeners of one process with one worker. By processor time it does not matter
what else the machine does. Then how long a handshake takes, as that of 200 connections with
one PING each, without sessions that are resumed; and what 500 connections at rest hold.
Needs redis-benchmark with TLS, and openssl.
"""

import os
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time

keyway = sys.argv[1]
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
requests = int(sys.argv[3]) if len(sys.argv) > 3 else 200_000
folder = tempfile.mkdtemp()


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def issue(name, *kind):
    openssl("req", "-x509", "-nodes", "-days", "300", "-subj", "/CN=measure", "-addext",
            "subjectAltName=IP:127.0.0.1", "-newkey", *kind,
            "-keyout", f"{name}.key", "-out", f"{name}.pem")


issue("ecdsa", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
issue("rsa", "rsa:2048")
plain, ecdsa, rsa = free_port(), free_port(), free_port()
listeners = f'[[listener]]\nbind = "tcp://127.0.0.1:{plain}"\npool = "main"\n'
for name, port in (("ecdsa", ecdsa), ("rsa", rsa)):
    listeners += (
        f'[[listener]]\nbind = "tcp://127.0.0.1:{port}"\npool = "main"\n'
        f'tls = {{ cert_file = "{folder}/{name}.pem", key_file = "{folder}/{name}.key" }}\n'
    )
with open(f"{folder}/keyway.toml", "w") as file:
    file.write('[server]\nadmin = "off"\nworkers = 1\n' + listeners)
    file.write('[pool.main]\nkind = "store"\nmemory_max = "256MiB"\n')
process = subprocess.Popen([keyway, "serve", f"{folder}/keyway.toml"],
                           stderr=open(f"{folder}/log", "w"))


def connected(port):
    for _ in range(500):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.02)
    sys.exit(open(f"{folder}/log").read())


def cpu_seconds():
    # The worker's schedstat counts nanoseconds; utime of stat, hundredths of seconds.
    total = 0
    for task in os.listdir(f"/proc/{process.pid}/task"):
        with open(f"/proc/{process.pid}/task/{task}/schedstat") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def resident():
    with open(f"/proc/{process.pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) * 1024


def rate(port, tls, depth):
    command = ["redis-benchmark", "-p", str(port), "-c", "50", "-P", str(depth), "-d", "64",
               "-n", str(requests if depth > 1 else requests // 4), "-t", "get", "-q",
               "-r", "10000"]
    if tls:
        command += ["--tls", "--cacert", f"{folder}/ecdsa.pem"]
    before = cpu_seconds()
    subprocess.run(command, check=True, capture_output=True)
    return (requests if depth > 1 else requests // 4) / (cpu_seconds() - before)


context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE


def secured(port):
    client = context.wrap_socket(connected(port))
    client.sendall(b"PING\r\n")
    assert client.recv(16) == b"+PONG\r\n"
    return client


def handshake(port):
    before = cpu_seconds()
    for _ in range(200):
        secured(port).close()
    return (cpu_seconds() - before) / 200


try:
    connected(plain).close()
    subprocess.run(["redis-benchmark", "-p", str(plain), "-t", "set", "-n", "50000", "-P", "16",
                    "-d", "64", "-r", "10000", "-q"], check=True, capture_output=True)
    for depth in (16, 1):
        pairs = [(rate(plain, False, depth), rate(ecdsa, True, depth)) for _ in range(rounds)]
        ratios = sorted(tls / bare for bare, tls in pairs)
        bare, tls = (statistics.median(column) / 1000 for column in zip(*pairs))
        print(f"depth {depth}: plain {bare:.0f}, TLS {tls:.0f} thousand requests per CPU-second; "
              f"TLS / plain {statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})")
    for name, port in (("ECDSA P-256", ecdsa), ("RSA 2048", rsa)):
        print(f"handshake, {name}: {handshake(port) * 1e6:.0f} us of processor time")
    before = resident()
    held = [secured(ecdsa) for _ in range(500)]
    time.sleep(0.5)
    print(f"at rest: {(resident() - before) / 500:.0f} bytes for each connection by TLS")
finally:
    process.terminate()
    process.wait()
