"""Django's own Redis cache, used through Django's API. Argument: HOST:PORT."""

import sys
import time

import django
from django.conf import settings

address = sys.argv[1]
settings.configure(
    CACHES={
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": f"redis://{address}/1"},
        "pages": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": f"redis://{address}/2",
            "KEY_PREFIX": "pages",
            "TIMEOUT": 100,
        },
    },
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    SECRET_KEY="only a test",
    USE_TZ=True,
)
django.setup()

from django.contrib.sessions.backends.cache import SessionStore  # noqa: E402  Django wants its settings first.
from django.core.cache import cache, caches  # noqa: E402

cache.clear()
cache.set("text", "väärde")
cache.set("object", {"a": [1, 2.5, None]}, timeout=None)
assert cache.get("text") == "väärde" and cache.get("object") == {"a": [1, 2.5, None]}
assert cache.get("none", "default") == "default" and "none" not in cache and "text" in cache
assert cache.add("text", "other") is False and cache.add("new", 1) is True
assert cache.incr("new") == 2 and cache.decr("new", 44) == -42
try:
    cache.incr("none")
except ValueError:
    pass
else:
    raise AssertionError("a key that is not there was increased")
assert cache.get_or_set("computed", lambda: 7) == 7 and cache.get("computed") == 7
assert cache.set_many({"a": 1, "b": 2, "c": 3}, timeout=100) == []
assert cache.get_many(["a", "c", "none"]) == {"a": 1, "c": 3}
cache.delete_many(["a", "b"])
assert cache.get_many(["a", "b", "c"]) == {"c": 3}
assert cache.touch("c", 1000) is True and cache.touch("none", 1000) is False
assert cache.delete("c") is True and cache.delete("c") is False

cache.set("gone", "at once", timeout=0)
assert cache.get("gone") is None
cache.set("short", "lived", timeout=1)
end = time.monotonic() + 60
while "short" in cache:
    assert time.monotonic() < end, "a key of one second is there after a minute"

# Another database, prefix and version is another key.
caches["pages"].set("text", "page", version=2)
assert caches["pages"].get("text") is None and caches["pages"].get("text", version=2) == "page"
assert caches["pages"].incr_version("text", version=2) == 3 and caches["pages"].get("text", version=3) == "page"
caches["pages"].clear()
assert cache.get("text") == "väärde"

session = SessionStore()
session["basket"] = ["bolt"]
session.save()
again = SessionStore(session_key=session.session_key)
assert again["basket"] == ["bolt"]
again.flush()
assert not SessionStore().exists(session.session_key)
cache.clear()
assert cache.get("text") is None
print("ok django")
