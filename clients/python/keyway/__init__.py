"""A client of Keyway, and of any server that speaks Redis's protocol.

>>> import keyway
>>> with keyway.Connection("shm:///run/keyway.shm") as connection:
...     connection.command("SET", "greeting", "hello")
...     connection.command("GET", "greeting")
'OK'
b'hello'

`keyway.redis_py` lets redis-py use shared memory.
"""

from ._keyway import Connection, ProtocolError, ReplyError, Stream

__all__ = ["Connection", "ProtocolError", "ReplyError", "Stream"]
