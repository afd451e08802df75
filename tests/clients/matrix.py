"""Runs the stock-client programs against a bare redis-server, a 4-shard pool and the embedded store.

    matrix.py --programs DIR --keyway BINARY [--quick] [--accept] [--only LANGUAGE ...]

scripts/test_clients.sh builds the programs into DIR and calls this. Every
case must pass against the bare server, or the case itself is wrong. What may
fail elsewhere is in expected.tsv; any other failure fails the run. A full run
rewrites docs/clients.md; --accept also rewrites expected.tsv.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
EXPECTED = HERE / "expected.tsv"
DOCUMENT = HERE.parent.parent / "docs" / "clients.md"
SHARDS = 4
# Longer than all cases of a program together may take at their own limits.
PROGRAM_SECONDS = 560

TOPICS = ["strings", "hashes", "pipelines", "transactions", "pub/sub", "blocking", "scripts", "scan"]
# What clients of Redis Cluster are tried with; a node stops where it may be spared.
STOPS = "a node stops"
CLUSTER_TOPICS = ["many keys", "pipelines", "transactions", "pub/sub", "sharded pub/sub", STOPS]
# What each library is tried with: a program that leaves a case out has failed.
LIBRARIES = {
    ("python", "redis-py"): TOPICS,
    ("python", "redis-py asyncio"): TOPICS,
    ("python", "Celery"): ["task and result", "group and chord", "delay and retry"],
    ("python", "RQ"): ["job and result", "failed job"],
    ("python", "django-redis"): ["get and set", "many keys", "lock", "delete_pattern", "clear"],
    ("go", "go-redis"): TOPICS,
    ("go", "rueidis"): TOPICS + ["client-side caching"],
    ("java", "Jedis"): TOPICS,
    ("java", "Lettuce"): TOPICS,
    ("java", "Redisson"): TOPICS + ["lock"],
    ("node", "ioredis"): TOPICS,
    ("node", "node-redis"): TOPICS,
    ("node", "BullMQ"): ["job and result", "delay and retry", "flows"],
    ("rust", "redis-rs"): TOPICS,
    ("rust", "fred"): TOPICS,
    ("go", "go-redis ClusterClient"): CLUSTER_TOPICS,
    ("java", "Jedis RedisClusterClient"): CLUSTER_TOPICS,
    ("node", "ioredis Cluster"): CLUSTER_TOPICS,
    ("go", "gomemcache"): ["values", "conditions", "cas", "many", "counters", "expiry"],
    ("java", "spymemcached"): ["values", "conditions", "cas", "many", "counters", "expiry"],
    ("node", "memjs"): ["values", "conditions", "many", "counters", "expiry"],
}
# Those that speak memcached's protocols, and what they are tried against.
OF_MEMCACHED = {"gomemcache", "spymemcached", "memjs"}
# Those that want a cluster, and what they are tried against.
OF_CLUSTER = {library for (_, library), topics in LIBRARIES.items() if topics is CLUSTER_TOPICS}
CLUSTERS = ["redis cluster", "cluster in disguise", "store in disguise"]
BARE = {"redis", "memcached", "redis cluster"}
# One library per language for every `make test`.
QUICK = {
    "go": ("go-redis", "go-redis ClusterClient"),
    "java": ("Jedis", "Jedis RedisClusterClient"),
    "node": ("ioredis", "ioredis Cluster"),
    "rust": ("redis-rs",),
}
# Where each library's version is pinned: file, and a pattern with the version.
PINS = {
    "redis-py": ("python/requirements.txt", r"^redis==(.+)$"),
    "redis-py asyncio": ("python/requirements.txt", r"^redis==(.+)$"),
    "Celery": ("python/requirements.txt", r"^celery==(.+)$"),
    "RQ": ("python/requirements.txt", r"^rq==(.+)$"),
    "django-redis": ("python/requirements.txt", r"^django-redis==(.+)$"),
    "go-redis": ("go/go.mod", r"go-redis/v9 v(\S+)"),
    "rueidis": ("go/go.mod", r"rueidis v(\S+)"),
    "Jedis": ("java/pom.xml", r"<artifactId>jedis</artifactId>\s*<version>(.+?)</version>"),
    "Lettuce": ("java/pom.xml", r"<artifactId>lettuce-core</artifactId>\s*<version>(.+?)</version>"),
    "Redisson": ("java/pom.xml", r"<artifactId>redisson</artifactId>\s*<version>(.+?)</version>"),
    "ioredis": ("node/package.json", r'"ioredis": "(.+?)"'),
    "node-redis": ("node/package.json", r'"redis": "(.+?)"'),
    "BullMQ": ("node/package.json", r'"bullmq": "(.+?)"'),
    "go-redis ClusterClient": ("go/go.mod", r"go-redis/v9 v(\S+)"),
    "Jedis RedisClusterClient": ("java/pom.xml", r"<artifactId>jedis</artifactId>\s*<version>(.+?)</version>"),
    "ioredis Cluster": ("node/package.json", r'"ioredis": "(.+?)"'),
    "gomemcache": ("go/go.mod", r"gomemcache v(\S+)"),
    "spymemcached": ("java/pom.xml", r"<artifactId>spymemcached</artifactId>\s*<version>(.+?)</version>"),
    "memjs": ("node/package.json", r'"memjs": "(.+?)"'),
    "redis-rs": ("rust/Cargo.toml", r'redis = \{ version = "=(.+?)"'),
    "fred": ("rust/Cargo.toml", r'fred = \{ version = "=(.+?)"'),
}


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_until_answering(port, process, what, asked=b"PING\r\n"):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit("%s ended with %d" % (what, process.returncode))
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as one:
                one.sendall(asked)
                if one.recv(64).startswith((b"+PONG", b"VERSION")):
                    return
        except OSError:
            pass
        time.sleep(0.02)
    sys.exit("%s does not answer" % what)


def ask(port, line):
    """What a server says to one command, as it comes."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as one:
        one.sendall((line + "\r\n").encode())
        one.settimeout(0.2)
        said = b""
        try:
            while part := one.recv(65536):
                said += part
        except TimeoutError:
            pass
    return said.decode(errors="replace")


def wait_until_said(port, line, words, lacks="\0"):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        said = ask(port, line)
        if words in said and lacks not in said:
            return
        time.sleep(0.02)
    sys.exit("%s is never answered with %s" % (line, words))


class Cluster:
    """Where the nodes of a cluster are, and the process behind the first, if it may be stopped."""

    def __init__(self, ports, victim=None):
        self.ports = ports
        self.address = ",".join("127.0.0.1:%d" % port for port in ports)
        self.victim = victim


class Servers:
    """A bare server, four shards and Keyway, for as long as the context lasts; of Redis and of memcached."""

    def __init__(self, keyway, directory):
        self.keyway = keyway
        self.directory = pathlib.Path(directory)
        self.processes = []

    def __enter__(self):
        ports = free_ports(SHARDS + 3)
        cached = free_ports(SHARDS + 5)
        bare, pool, store = ports[SHARDS:]
        for port in cached[: SHARDS + 1]:
            self.start("memcached", port, [
                "memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-u", "nobody",
            ])
        for port in ports[: SHARDS + 1]:
            self.start("redis-server", port, [
                "redis-server", "--port", str(port), "--bind", "127.0.0.1",
                "--save", "", "--appendonly", "no", "--dir", str(self.directory),
            ])
        config = self.directory / "keyway.toml"
        lines = ", ".join('"127.0.0.1:%d:1 shard%d"' % (port, nth) for nth, port in enumerate(ports[:SHARDS]))
        config.write_text(
            '[server]\nadmin = "off"\n'
            '[[listener]]\nbind = "tcp://127.0.0.1:%d"\npool = "shards"\n'
            '[[listener]]\nbind = "tcp://127.0.0.1:%d"\npool = "local"\n'
            '[pool.shards]\nkind = "sharded"\nhash_tag = "{}"\nservers = [%s]\n'
            '[pool.local]\nkind = "store"\nmemory_max = "256MiB"\n' % (pool, store, lines)
            + self.of_memcached(cached)
        )
        self.start("keyway", store, [self.keyway, "serve", str(config)])
        names = ["memcached", "memcached pool", "memcached pool, asked in text", "memcached pool, asked in packets"]
        served = cached[SHARDS : SHARDS + 4] + [cached[-1]]
        of_memcached = dict(zip(names + ["memcached store"], served))
        return {"redis": bare, "pool": pool, "store": store, **of_memcached, **self.clusters()}

    def clusters(self):
        """A real cluster, and for each library two Keyways over it, and one with a store, that pose as one."""
        nodes, buses = free_ports(6)[:3], free_ports(6)[3:]
        for nth, (port, bus) in enumerate(zip(nodes, buses)):
            self.start("redis-server", port, [
                "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes",
                "--cluster-port", str(bus), "--cluster-config-file", "nodes-%d.conf" % port,
                "--save", "", "--appendonly", "no", "--dir", str(self.directory),
            ])
            ask(port, "CLUSTER ADDSLOTSRANGE %d %d" % (16384 * nth // 3, 16384 * (nth + 1) // 3 - 1))
        for port, bus in zip(nodes[1:], buses[1:]):
            ask(nodes[0], "CLUSTER MEET 127.0.0.1 %d %d" % (port, bus))
        for port in nodes:
            wait_until_said(port, "CLUSTER INFO", "cluster_state:ok")
        of_cluster = '[pool.main]\nkind = "cluster"\nservers = ["127.0.0.1:%d"]\n' % nodes[0]
        of_store = '[pool.main]\nkind = "store"\nmemory_max = "64MiB"\n'
        disguised, stores = {}, {}
        for library in sorted(OF_CLUSTER):
            first, second, *both = free_ports(4)
            pair = [self.disguise([port], [first, second], of_cluster) for port in (first, second)]
            for port in (first, second):
                wait_until_said(port, "CLUSTER SHARDS", "health", lacks="fail")
            self.disguise(both, both, of_store)
            disguised[library] = Cluster([first, second], pair[0])
            stores[library] = Cluster(both)
        self.disguised = disguised, stores
        real = {library: Cluster(nodes) for library in OF_CLUSTER}
        return dict(zip(CLUSTERS, [real, disguised, stores]))

    def disguise(self, ports, announced, pool):
        """A Keyway that listens there and poses as the cluster of those announced."""
        config = self.directory / ("disguise-%d.toml" % ports[0])
        names = ", ".join('"127.0.0.1:%d"' % port for port in announced)
        listener = '[[listener]]\nbind = "tcp://127.0.0.1:%d"\npool = "main"\ncluster_mode = "emulate"\ncluster_announce = [%s]\n'
        config.write_text('[server]\nadmin = "off"\n' + "".join(listener % (port, names) for port in ports) + pool)
        return self.start("keyway", ports[0], [self.keyway, "serve", str(config)])

    def redirections(self):
        """What the Keyways that pose as clusters and still run have redirected: nothing, or it is told."""
        told = []
        for cluster in [one for kind in self.disguised for one in kind.values()]:
            errors = ask(cluster.ports[-1], "INFO errorstats")
            told += re.findall(r"errorstat_(?:MOVED|ASK)\S*", errors)
        return told

    def of_memcached(self, ports):
        """The pools of memcached, and the listener of the store, as parts of a file."""
        lines = ", ".join('"127.0.0.1:%d:1 cache%d"' % (port, nth) for nth, port in enumerate(ports[:SHARDS]))
        text = '[[listener]]\nbind = "tcp://127.0.0.1:%d"\nprotocol = "memcached"\npool = "cached"\n' % ports[-1]
        text += '[pool.cached]\nkind = "store"\nmemory_max = "64MiB"\n'
        for port, protocol in zip(ports[SHARDS + 1 :], ["meta", "text", "binary"]):
            text += '[[listener]]\nbind = "tcp://127.0.0.1:%d"\nprotocol = "memcached"\npool = "%s"\n' % (port, protocol)
            text += '[pool.%s]\nkind = "memcached"\nserver_protocol = "%s"\nservers = [%s]\n' % (protocol, protocol, lines)
        return text

    def start(self, what, port, command):
        log = open(self.directory / ("%s-%d.log" % (what, port)), "wb")
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        log.close()
        self.processes.append(process)
        wait_until_answering(port, process, what, b"version\r\n" if what == "memcached" else b"PING\r\n")
        return process

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def command_of(language, programs, quick):
    """How a built program is started, without its arguments."""
    at = programs / language
    return {
        "python": [str(at / "venv/bin/python"), str(HERE / "python/main.py")],
        "go": [str(at / ("quick" if quick else "full"))],
        "java": ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
                 "%s/%s/classes:%s/%s/lib/*" % ((at, "quick" if quick else "full") * 2), "Main"],
        "node": ["node", str(at / "main.mjs")],
        "rust": [str(at / "debug/stock-clients")],
    }[language]


def run_program(command, address, libraries, victim=None):
    """The lines of one program against one server: (language, library, topic) to (verdict, reason)."""
    process = subprocess.Popen(
        command + [address] + libraries,
        env={**os.environ, "STOCK_VICTIM": str(victim.pid) if victim else ""},
        stdout=subprocess.PIPE, stderr=None if os.environ.get("STOCK_VERBOSE") else subprocess.DEVNULL,
        stdin=subprocess.DEVNULL, start_new_session=True, text=True, errors="replace",
    )
    try:
        output, _ = process.communicate(timeout=PROGRAM_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    results = {}
    for line in output.splitlines():
        parts = line.split("\t")
        if len(parts) >= 5 and parts[3] in ("pass", "fail"):
            results[tuple(parts[:3])] = (parts[3], plain(parts[4]))
    return results


def plain(reason):
    """A reason without what differs from run to run."""
    reason = re.sub(r"\.? channel: \[.*", "", reason)
    reason = re.sub(r"(localhost/)?127\.0\.0\.1[:.]\d+", "SERVER", reason)
    reason = re.sub(r"\b0x[0-9a-f]+\b|@[0-9a-f]{6,}\b", "…", reason)
    reason = re.sub(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b[0-9a-f]{32,40}\b", "…", reason)
    reason = re.sub(r"[\x00-\x1f\x7f]", "?", reason).replace("|", "/").strip()
    return reason if len(reason) <= 180 else reason[:179] + "…"


def run_target(target, port, languages, programs, quick):
    """Every program at once against one server, and a failure for each case that said nothing."""
    wanted = {}
    for (language, library), topics in LIBRARIES.items():
        if (library in OF_MEMCACHED) != target.startswith("memcached"):
            continue
        if (library in OF_CLUSTER) != (target in CLUSTERS):
            continue
        if language in languages and (not quick or library in QUICK.get(language, ())):
            if topics is CLUSTER_TOPICS and port[library].victim is None:
                topics = [topic for topic in topics if topic != STOPS]
            wanted.setdefault(language, {})[library] = topics
    with concurrent.futures.ThreadPoolExecutor() as together:
        runs = []
        for language, libraries in wanted.items():
            command = command_of(language, programs, quick)
            if target in CLUSTERS:
                for library in libraries:
                    cluster = port[library]
                    runs.append(together.submit(run_program, command, cluster.address, [library], cluster.victim))
            else:
                runs.append(together.submit(run_program, command, "127.0.0.1:%d" % port, list(libraries)))
        said = {case: verdict for run in runs for case, verdict in run.result().items()}
    return {
        (target, language, library, topic): said.get((language, library, topic), ("fail", "no result"))
        for language, libraries in wanted.items()
        for library, topics in libraries.items()
        for topic in topics
    }


def read_expected():
    lines = EXPECTED.read_text().splitlines() if EXPECTED.exists() else []
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return {tuple(row[:4]): row[4] for row in rows}


def write_expected(results, languages):
    kept = {case: reason for case, reason in read_expected().items() if case[1] not in languages}
    kept.update({case: reason for case, (verdict, reason) in results.items()
                 if verdict == "fail" and case[0] not in BARE})
    text = "# Cases known to fail: target, language, library, topic, reason. Rewritten by\n"
    text += "# scripts/test_clients.sh --accept; a failure that is not here fails the run.\n"
    text += "".join("\t".join(case + (kept[case],)) + "\n" for case in sorted(kept))
    EXPECTED.write_text(text)


def version(library):
    file, pattern = PINS[library]
    return re.search(pattern, (HERE / file).read_text(), re.MULTILINE).group(1)


def mark(results, target, language, library, topic):
    verdict, _ = results.get((target, language, library, topic), ("", ""))
    return {"pass": "yes", "fail": "**no**"}.get(verdict, "")


def write_document(results):
    text = """# Stock clients

What client libraries do at their default settings, each pinned to the version named here: through a
pool of four Redis servers (`hash_tag = "{}"`), and on the embedded store. Every case passes against
a bare redis-server. The keys of one operation share a hash tag where the library lets its user
choose them.

This page is written by `make test-clients`, which fails when a case fails that is not listed in
`tests/clients/expected.tsv`. The cases are in `tests/clients/`.
"""
    for target, title in (("pool", "Through a pool of four shards"), ("store", "On the embedded store")):
        text += "\n## %s\n\n" % title
        text += "| language | library | %s |\n" % " | ".join(TOPICS)
        text += "| --- | --- |%s\n" % (" --- |" * len(TOPICS))
        for (language, library), topics in LIBRARIES.items():
            if topics[: len(TOPICS)] == TOPICS:
                marks = [mark(results, target, language, library, topic) for topic in TOPICS]
                text += "| %s | %s %s | %s |\n" % (language, library, version(library), " | ".join(marks))
    text += "\n## What only some libraries do\n\n| language | library | case | pool | store |\n| --- | --- | --- | --- | --- |\n"
    for (language, library), topics in LIBRARIES.items():
        for topic in topics:
            if topic not in TOPICS and library not in OF_MEMCACHED | OF_CLUSTER:
                marks = [mark(results, target, language, library, topic) for target in ("pool", "store")]
                text += "| %s | %s %s | %s | %s |\n" % (language, library, version(library), topic, " | ".join(marks))
    text += """
## Clients of Redis Cluster

Against Keyways that pose as a cluster (`cluster_mode = "emulate"`): two over a real cluster, and two
listeners of one embedded store. Every case passes against the real cluster, but for that of a node
that stops, which is a Keyway; no client is redirected. redis-py's RedisCluster is tried by every
`make test` (`tests/python/cluster_client.py`).

| language | library | case | two Keyways over a cluster | two listeners of a store |
| --- | --- | --- | --- | --- |
"""
    for (language, library), topics in LIBRARIES.items():
        for topic in topics if library in OF_CLUSTER else []:
            marks = [mark(results, target, language, library, topic) for target in CLUSTERS[1:]]
            text += "| %s | %s %s | %s | %s |\n" % (language, library, version(library), topic, " | ".join(marks))
    text += """
## Clients of memcached

Through a pool of four servers, asked in each of their protocols, and on the embedded store. Every
case passes against a bare memcached. pymemcache and pylibmc are tried by every `make test`
(`tests/python/memcached_client.py`), as is libmemcached's `memccapable`.

| language | library | case | pool, meta | pool, text | pool, binary | store |
| --- | --- | --- | --- | --- | --- | --- |
"""
    targets = ["memcached pool", "memcached pool, asked in text", "memcached pool, asked in packets", "memcached store"]
    for (language, library), topics in LIBRARIES.items():
        for topic in topics if library in OF_MEMCACHED else []:
            marks = [mark(results, target, language, library, topic) for target in targets]
            text += "| %s | %s %s | %s | %s |\n" % (language, library, version(library), topic, " | ".join(marks))
    text += "\n## Each failure and its reason\n\nAs the library words it.\n\n"
    failed = [(case, reason) for case, (verdict, reason) in results.items() if verdict == "fail" and case[0] not in BARE]
    if failed:
        text += "| where | library | case | reason |\n| --- | --- | --- | --- |\n"
    for (target, _, library, topic), reason in failed:
        text += "| %s | %s | %s | %s |\n" % (target, library, topic, reason.replace("<", "&lt;"))
    text += "" if failed else "None fails.\n"
    DOCUMENT.write_text(text)


def judge(results):
    """Prints what is not as expected and returns how many cases that are."""
    expected, wrong = read_expected(), 0
    for case, (verdict, reason) in results.items():
        if verdict == "fail" and case not in expected:
            wrong += 1
            why = "the case itself is wrong" if case[0] in BARE else "not among the known failures"
            print("FAILED %s: %s (%s)" % (" / ".join(case), reason, why))
        elif verdict == "pass" and case in expected:
            print("passes now, though listed as failing: %s" % " / ".join(case))
    return wrong


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--programs", type=lambda path: pathlib.Path(path).resolve(), required=True)
    arguments.add_argument("--keyway", required=True)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--accept", action="store_true")
    arguments.add_argument("--only", nargs="*", default=sorted({language for language, _ in LIBRARIES}))
    options = arguments.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as directory:
        servers = Servers(options.keyway, directory)
        with servers as ports:
            for target, port in ports.items():
                print("== stock clients against %s" % target, flush=True)
                results.update(run_target(target, port, options.only, options.programs, options.quick))
            redirections = servers.redirections()
    whole = not options.quick and {language for language, _ in LIBRARIES} == set(options.only)
    if options.accept:
        write_expected(results, options.only)
    if whole:
        write_document(results)
    wrong = judge(results)
    if redirections:
        print("FAILED clients of a cluster in disguise were redirected: %s" % ", ".join(redirections))
        wrong += len(redirections)
    passed = sum(verdict == "pass" for verdict, _ in results.values())
    known = len(results) - passed - wrong
    print("stock clients: %d cases, %d passed, %d known to fail, %d failed" % (len(results), passed, known, wrong))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
