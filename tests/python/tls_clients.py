"""Stock clients of Redis and memcached by TLS: DIRECTORY REDIS_PORT MEMCACHED_PORT."""

import ssl
import sys

import pymemcache
import redis

directory, redis_port, memcached_port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ca_file = f"{directory}/ca.pem"

client = redis.Redis(
    host="127.0.0.1",
    port=redis_port,
    ssl=True,
    ssl_ca_certs=ca_file,
    ssl_certfile=f"{directory}/client.pem",
    ssl_keyfile=f"{directory}/client.key",
    ssl_check_hostname=True,
)
with client.pipeline(transaction=False) as pipeline:
    for number in range(2000):
        pipeline.set(f"k{number}", b"v" * (number % 700))
    assert all(pipeline.execute())
values = client.mget([f"k{number}" for number in range(2000)])
assert values == [b"v" * (number % 700) for number in range(2000)]
large = bytes(range(256)) * 20000
assert client.set("large", large) and client.get("large") == large
subscriber = client.pubsub()
subscriber.subscribe("news")
assert subscriber.get_message(timeout=10)["type"] == "subscribe"
assert client.publish("news", "today") == 1
assert subscriber.get_message(timeout=10)["data"] == b"today"
try:
    redis.Redis(host="127.0.0.1", port=redis_port, ssl=True, ssl_ca_certs=ca_file).ping()
    sys.exit("it is served without its certificate")
except redis.exceptions.ConnectionError:
    pass

context = ssl.create_default_context(cafile=ca_file)
cache = pymemcache.Client(("127.0.0.1", memcached_port), tls_context=context, timeout=10)
assert cache.set("a", b"1", noreply=False)
assert cache.set("large", large[:900_000], noreply=False)
assert cache.get("large") == large[:900_000]
assert cache.get_many(["a", "b"]) == {"a": b"1"}
assert cache.incr("a", 4) == 5
cache.quit()
print("right")
