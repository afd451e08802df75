"""django-redis as Django's cache."""

import django
from django.conf import settings

from cases import case, check, equal, url

LIBRARY = "django-redis"

settings.configure(
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": url(),
            # One shard for all keys: set_many is a transaction.
            "KEY_PREFIX": "{site}",
            "OPTIONS": {"CLIENT_CLASS": "django_redis.client.DefaultClient"},
        }
    }
)
django.setup()

from django.core.cache import cache  # noqa: E402  (only after the settings)


@case(LIBRARY, "get and set")
def get_and_set():
    cache.set("a", {"any": ["value"]}, timeout=100)
    equal(cache.get("a"), {"any": ["value"]})
    check(cache.ttl("a") in (99, 100), "the time to live")
    equal(cache.get("none", "default"), "default")
    check(cache.add("b", 1), "add")
    check(not cache.add("b", 2), "add of what is there")
    equal(cache.incr("b"), 2)
    equal(cache.get_or_set("c", lambda: 3), 3)
    check(cache.touch("c", 50), "touch")
    check(cache.delete("c"), "delete")
    check(not cache.has_key("c"), "deleted")


@case(LIBRARY, "many keys")
def many():
    values = {"many%d" % nth: nth for nth in range(50)}
    cache.set_many(values)
    equal(cache.get_many(values), values)
    cache.delete_many(values)
    equal(cache.get_many(values), {})


@case(LIBRARY, "lock")
def lock():
    with cache.lock("guard", timeout=5, blocking_timeout=2):
        check(not cache.lock("guard", timeout=5).acquire(blocking=False), "locked twice")
    again = cache.lock("guard", timeout=5)
    check(again.acquire(blocking=False), "not released")
    check(again.extend(10), "extend")
    again.release()


@case(LIBRARY, "delete_pattern")
def delete_pattern():
    for nth in range(200):
        cache.set("pattern:%d" % nth, nth)
    cache.set("kept", 1)
    equal(len(list(cache.iter_keys("pattern:*"))), 200)
    equal(cache.delete_pattern("pattern:*"), 200)
    equal(cache.keys("pattern:*"), [])
    equal(cache.get("kept"), 1)


@case(LIBRARY, "clear")
def clear():
    cache.set("a", 1)
    cache.clear()
    equal(cache.get("a"), None)
