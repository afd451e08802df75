#!/usr/bin/env python3
"""Records what real servers say of clusters, sentinels and replication.

    record.py OUTPUT SERVER [PORT]

starts clusters and sentinels of the redis-server or valkey-server SERVER on
loopback ports from PORT on (the cluster bus is 10000 above) and writes what
they reply to the folder OUTPUT: a file for each situation, in it a line with
what was asked before each reply, which is there byte for byte. Takes about a
minute.
"""
import atexit
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time

OUT, SERVER = sys.argv[1], os.path.abspath(sys.argv[2])
PORT = int(sys.argv[3]) if len(sys.argv) > 3 else 15100
LOOPBACK = {4: "127.0.0.1", 6: "::1"}
VERSION_TEXT = subprocess.run([SERVER, "--version"], capture_output=True, text=True).stdout
VERSION = tuple(int(part) for part in re.search(r"v=(\d+)\.(\d+)", VERSION_TEXT).groups())
IS_VALKEY = "alkey" in VERSION_TEXT
if IS_VALKEY and VERSION[0] > 100:  # what is not released yet says 255.255
    VERSION = (8, 1)
HAS_SHARDS = VERSION >= (7, 0)
HAS_RESP3 = VERSION >= (6, 0)


class Client:
    """A connection that returns replies as they stand."""

    def __init__(self, host, port, context=None):
        self.socket = socket.create_connection((host, port), timeout=10)
        if context:
            self.socket = context.wrap_socket(self.socket)
        self.file = self.socket.makefile("rb")

    def __call__(self, *words):
        self.send(*words)
        return self.reply()

    def send(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"*%d\r\n" % len(words)]
        parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self.socket.sendall(b"".join(parts))

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise OSError("closed")
        kind, count = line[:1], line[1:-2]
        if kind in b"$=" and int(count) >= 0:
            return line + self.file.read(int(count) + 2)
        if kind in b"*~>%":
            count = max(int(count), 0) * (2 if kind == b"%" else 1)
            return line + b"".join(self.reply() for _ in range(count))
        return line


class Server:
    def __init__(self, port, *arguments, host=LOOPBACK[4], is_sentinel=False, client_port=None):
        self.host, self.port = host, port
        self.directory = tempfile.mkdtemp(prefix="record-")
        self.is_sentinel = is_sentinel
        self.arguments = [str(argument) for argument in arguments]
        self.client_port = client_port or port
        self.start()

    def start(self):
        config = os.path.join(self.directory, "sentinel.conf")
        if self.is_sentinel and not os.path.exists(config):
            with open(config, "w") as file:
                file.write(f"port {self.port}\nbind {self.host}\ndir {self.directory}\n")
                file.write("protected-mode no\n")
        command = [SERVER, config, "--sentinel"] if self.is_sentinel else [
            SERVER, "--port", str(self.port), "--bind", self.host, "--save", "",
            "--dir", self.directory, "--protected-mode", "no", *self.arguments]
        log = open(os.path.join(self.directory, "log"), "a")
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        atexit.register(self.process.kill)
        until(lambda: self.ask("PING").startswith(b"+PONG"), "a server answers")

    def client(self):
        return Client(self.host, self.client_port)

    def ask(self, *words):
        client = self.client()
        try:
            return client(*words)
        finally:
            client.socket.close()

    def ask3(self, *words):
        client = self.client()
        client("HELLO", "3")
        return client(*words)

    def text(self, *words):
        return self.ask(*words).decode(errors="replace")

    def kill(self):
        self.process.kill()
        self.process.wait()


def until(condition, what, seconds=60, every=0.02):
    end = time.time() + seconds
    while time.time() < end:
        try:
            value = condition()
            if value:
                return value
        except OSError:
            pass
        time.sleep(every)
    raise SystemExit(f"waited in vain: {what}")


def save(name, reply):
    situation, _, what = name.partition(".")
    with open(os.path.join(OUT, situation), "ab") as file:
        file.write(what.replace(".", " ").encode() + b"\n" + reply)


def save_cluster(name, server):
    for command in ["nodes", "slots"] + (["shards"] if HAS_SHARDS else []):
        save(f"{name}.{command}", server.ask("CLUSTER", command.upper()))
        if HAS_RESP3:
            save(f"{name}.{command}.resp3", server.ask3("CLUSTER", command.upper()))


def cluster(*arguments, family=4, timeout=1500, each=lambda index: []):
    """Three primaries and a replica of each; the second owns a slot among the first's."""
    servers = [Server(PORT + index, "--cluster-enabled", "yes", "--cluster-node-timeout", timeout,
                      *arguments, *each(index), host=LOOPBACK[family])
               for index in range(6)]
    ids = [re.search(r"[0-9a-f]{40}", server.text("CLUSTER", "MYID"))[0] for server in servers]
    owned = [[*range(0, 100), *range(101, 5461)], [100, *range(5461, 10923)], [*range(10923, 16384)]]
    for index, (server, slots) in enumerate(zip(servers, owned)):
        assert server.ask("CLUSTER", "ADDSLOTS", *slots) == b"+OK\r\n"
        server.ask("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
    for server in servers[1:]:
        servers[0].ask("CLUSTER", "MEET", server.host, server.port)
    until(lambda: all(all(one in server.text("CLUSTER", "NODES") for one in ids)
                      and "handshake" not in server.text("CLUSTER", "NODES")
                      for server in servers), "all have met")
    for index in range(3):
        until(lambda: servers[3 + index].ask("CLUSTER", "REPLICATE", ids[index]) == b"+OK\r\n",
              "a replica is made")
    until(lambda: all("cluster_state:ok" in server.text("CLUSTER", "INFO") for server in servers)
          and all(server.text("CLUSTER", "NODES").count("slave") == 3
                  and " - 0 0 0 connected" not in server.text("CLUSTER", "NODES")
                  for server in servers)
          and all("master_link_status:up" in server.text("INFO", "replication")
                  for server in servers[3:]), "the cluster is whole")
    if HAS_SHARDS:
        # A replica is online for the others once they have heard how far it is.
        servers[0].ask("SET", "{06S}", "1")
        for server in servers[:3]:
            until(lambda: b"master_repl_offset:0\r" not in server.ask("INFO", "replication"),
                  "there is a history")
        for server in servers:
            until(lambda: b"loading" not in server.ask("CLUSTER", "SHARDS"), "replicas are online")
    return servers, ids


def end(servers):
    for server in servers:
        server.kill()


def record_alone():
    server = Server(PORT, "--cluster-enabled", "yes")
    save_cluster("alone", server)
    server.ask("CLUSTER", "ADDSLOTS", 0, 1, 2, 16383)
    save_cluster("alone_with_slots", server)
    keys = ["", "a", "123456789", "foo", "{user1000}.following", "foo{}{bar}", "foo{{bar}}zap",
            "foo{bar}{zap}", "{}", "}{", "{", "a}b{c}", "a{b", "{{}}", "x{}", "caf\u00e9", "{\u00e9}x"]
    keys += [f"key:{number * number * 7919}" for number in range(60)]
    keys += ["x" * length for length in range(1, 40)]
    keys += [f"{'p' * (number % 5)}{{tag{number}}}{'s' * (number % 7)}" for number in range(60)]
    raw = [key.encode() for key in keys]
    raw += [bytes((start + 37 * step) % 256 for step in range(start % 19 + 1)) for start in range(100)]
    client = server.client()
    lines = [b"%s %s\n" % (key.hex().encode(), client("CLUSTER", "KEYSLOT", key)[1:-2]) for key in raw]
    with open(os.path.join(OUT, "keyslots"), "wb") as file:
        file.write(b"".join(lines))
    server.kill()


def record_cluster():
    servers, ids = cluster()
    save_cluster("ipv4", servers[0])
    save_cluster("ipv4_asked_replica", servers[4])
    # A slot on its way from the first to the third, and one from the second.
    servers[0].ask("CLUSTER", "SETSLOT", 7, "MIGRATING", ids[2])
    servers[2].ask("CLUSTER", "SETSLOT", 7, "IMPORTING", ids[0])
    servers[0].ask("CLUSTER", "SETSLOT", 100, "IMPORTING", ids[1])
    save("moving_source.nodes", servers[0].ask("CLUSTER", "NODES"))
    save("moving_target.nodes", servers[2].ask("CLUSTER", "NODES"))
    for server in servers:
        server.ask("CLUSTER", "SETSLOT", 7, "STABLE")
        server.ask("CLUSTER", "SETSLOT", 100, "STABLE")
    # Someone who is not there is being met.
    servers[0].ask("CLUSTER", "MEET", servers[0].host, PORT + 9)
    save("handshake.nodes", servers[0].ask("CLUSTER", "NODES"))
    # A replica forgets who it was: its old identity has no address any more.
    servers[5].ask("CLUSTER", "RESET", "HARD")
    gone = lambda: any("noaddr" in line and ids[5] in line
                       for line in servers[0].text("CLUSTER", "NODES").split("\n"))
    until(gone, "a node without an address")
    save_cluster("no_address", servers[0])
    # A primary whose replica is gone dies, then one that has a replica.
    # As long as the second one is stopped, nobody confirms the suspicion.
    servers[1].process.send_signal(signal.SIGSTOP)
    servers[2].kill()
    nodes = lambda: servers[0].text("CLUSTER", "NODES")
    until(lambda: re.search(ids[2] + r" \S+ master,fail\?", nodes()), "a primary is suspected")
    save("failing.nodes", servers[0].ask("CLUSTER", "NODES"))
    servers[1].process.send_signal(signal.SIGCONT)
    until(lambda: re.search(ids[2] + r" \S+ master,fail ", nodes())
          and nodes().count("fail") == 1, "the third primary has failed")
    save_cluster("failed", servers[0])
    end(servers)
    servers, ids = cluster()
    servers[1].kill()
    until(lambda: re.search(ids[4] + r" \S+ master", servers[0].text("CLUSTER", "NODES"))
          and "cluster_state:ok" in servers[0].text("CLUSTER", "INFO"), "a replica took over")
    save_cluster("failed_over", servers[0])
    end(servers)


def record_ipv6():
    servers, _ = cluster(family=6)
    save_cluster("ipv6", servers[0])
    end(servers)


def record_names():
    # The last one has no name.
    name = lambda index: ["--cluster-announce-hostname", f"node-{index}.example.net"] if index < 5 else []
    servers, ids = cluster(each=name)
    until(lambda: servers[0].text("CLUSTER", "NODES").count("example.net") == 5, "names are known")
    save_cluster("names_not_preferred", servers[0])
    servers[0].ask("CONFIG", "SET", "cluster-preferred-endpoint-type", "hostname")
    save_cluster("names", servers[0])
    servers[0].ask("CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint")
    save_cluster("unknown_endpoint", servers[0])
    end(servers)


def record_tls():
    """Only where the server can do TLS and openssl is there."""
    directory = tempfile.mkdtemp(prefix="record-")
    key, cert = os.path.join(directory, "key"), os.path.join(directory, "cert")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out",
                    cert, "-subj", "/CN=localhost", "-days", "2"], check=True, capture_output=True)
    tls = ["--tls-key-file", key, "--tls-cert-file", cert, "--tls-ca-cert-file", cert,
           "--tls-cluster", "yes", "--tls-replication", "yes", "--tls-auth-clients", "no"]
    servers = [Server(PORT + 20 + index, "--cluster-enabled", "yes", "--tls-port", PORT + index, *tls)
               for index in range(3)]
    for index, server in enumerate(servers):
        first, last = 5462 * index, min(5462 * (index + 1), 16384)
        server.ask("CLUSTER", "ADDSLOTS", *range(first, last))
        server.ask("CLUSTER", "MEET", LOOPBACK[4], PORT)
    until(lambda: all("cluster_state:ok" in server.text("CLUSTER", "INFO") for server in servers), "ok")
    context = ssl._create_unverified_context()
    for command in ["NODES", "SLOTS", "SHARDS"]:
        save(f"tls_asked_plainly.{command.lower()}", servers[0].ask("CLUSTER", command))
        client = Client(LOOPBACK[4], PORT, context)
        save(f"tls.{command.lower()}", client("CLUSTER", command))
    end(servers)


def record_sentinel():
    primary = Server(PORT)
    replicas = [Server(PORT + 1 + index, "--slaveof", LOOPBACK[4], PORT) for index in range(2)]
    save("primary_alone.info", primary.ask("INFO", "replication"))
    sentinels = [Server(PORT + 5 + index, is_sentinel=True) for index in range(3)]
    until(lambda: primary.text("INFO", "replication").count("state=online") == 2, "replicas follow")
    for sentinel in sentinels:
        sentinel.ask("SENTINEL", "MONITOR", "main", LOOPBACK[4], PORT, 2)
        sentinel.ask("SENTINEL", "SET", "main", "down-after-milliseconds", 500)
        sentinel.ask("SENTINEL", "SET", "main", "failover-timeout", 3000)
    first = sentinels[0]
    replicas_command = "REPLICAS" if VERSION >= (5, 0) else "SLAVES"
    known = lambda: (first.text("SENTINEL", "SENTINELS", "main").count("runid") == 2
                     and "disconnected" not in first.text("SENTINEL", "SENTINELS", "main")
                     and first.text("SENTINEL", replicas_command, "main").count("runid") == 2
                     and "master-link-status\r\n$2\r\nok" in first.text("SENTINEL", replicas_command, "main")
                     and "num-other-sentinels\r\n$1\r\n2" in first.text("SENTINEL", "MASTER", "main"))
    until(known, "the sentinel knows all")
    until(lambda: "master-link-status\r\n$3\r\nerr" not in first.text("SENTINEL", replicas_command, "main"),
          "replicas are linked")

    def save_sentinel(name):
        for what, words in {
            "primaries": ["MASTERS"],
            "primary": ["MASTER", "main"],
            "replicas": [replicas_command, "main"],
            "slaves": ["SLAVES", "main"],
            "sentinels": ["SENTINELS", "main"],
            "address": ["GET-MASTER-ADDR-BY-NAME", "main"],
        }.items():
            save(f"{name}.{what}", first.ask("SENTINEL", *words))
            if HAS_RESP3:
                save(f"{name}.{what}.resp3", first.ask3("SENTINEL", *words))

    save_sentinel("sentinel")
    save("unwatched.primary", first.ask("SENTINEL", "MASTER", "nobody"))
    save("unwatched.replicas", first.ask("SENTINEL", "SLAVES", "nobody"))
    save("unwatched.address", first.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "nobody"))
    save("primary.info", primary.ask("INFO", "replication"))
    save("replica.info", replicas[0].ask("INFO", "replication"))
    if HAS_RESP3:
        save("replica.info.resp3", replicas[0].ask3("INFO", "replication"))
    listener = first.client()
    listener("SUBSCRIBE", "+switch-master")
    primary.kill()
    until(lambda: b"master_link_status:down" in replicas[0].ask("INFO", "replication"), "the link is down")
    save("replica_unlinked.info", replicas[0].ask("INFO", "replication"))
    until(lambda: "o_down" in first.text("SENTINEL", "MASTER", "main"), "the primary is down", every=0.002)
    save_sentinel("sentinel_down")
    listener.socket.settimeout(60)
    save("switch.message", listener.reply())
    until(lambda: "s_down" in first.text("SENTINEL", replicas_command, "main"), "the old one is a replica")
    save_sentinel("sentinel_switched")
    end(sentinels + replicas)


if os.path.isdir(OUT):
    for old in os.listdir(OUT):
        os.remove(os.path.join(OUT, old))
os.makedirs(OUT, exist_ok=True)
record_alone()
record_cluster()
record_ipv6()
if HAS_SHARDS:
    record_names()
if b"libssl" in subprocess.run(["ldd", SERVER], capture_output=True).stdout:
    record_tls()
record_sentinel()
print(OUT, len(os.listdir(OUT)), "files")
