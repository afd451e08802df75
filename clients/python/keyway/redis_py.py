"""redis-py over shared memory.

>>> import redis
>>> from keyway.redis_py import pool
>>> client = redis.Redis(connection_pool=pool("shm:///run/keyway.shm"))
>>> client.set("greeting", "hello")
True
"""

import redis
from redis.connection import AbstractConnection

from ._keyway import Stream

try:
    from redis.maint_notifications import MaintNotificationsConfig
except ImportError:  # redis-py before 7
    MaintNotificationsConfig = None


class KeywayConnection(AbstractConnection):
    """A connection of redis-py whose bytes go to shm:///path, unix:///path or tcp://host:port."""

    def __init__(self, url, **options):
        super().__init__(**options)
        self.url = url

    def repr_pieces(self):
        return [("url", self.url), ("db", self.db)]

    def _connect(self):
        stream = Stream(self.url, self.socket_connect_timeout)
        stream.settimeout(self.socket_timeout)
        return stream

    def _host_error(self):
        return self.url

    def _error_message(self, exception):
        return str(exception)


def pool(url, **options):
    """A pool of such connections, for redis.Redis(connection_pool=...). The options are those of
    redis-py's connections: db, username, password, protocol, socket_timeout and so on."""
    if MaintNotificationsConfig is not None:
        # They tell a client that its host moves: there is no host here.
        options.setdefault("maint_notifications_config", MaintNotificationsConfig(enabled=False))
    return redis.ConnectionPool(connection_class=KeywayConnection, url=url, **options)
