"""Stock Python clients: main.py HOST:PORT [LIBRARY ...]

Prints a line per case: language, library, topic, pass or fail, reason. Each
case is a process of its own, so that one that hangs can be ended.
"""

import os
import signal
import subprocess
import sys
import traceback

LIMIT_SECONDS = 40
MODULES = {
    "redis-py": "redis_sync",
    "redis-py asyncio": "redis_asyncio",
    "Celery": "with_celery",
    "RQ": "with_rq",
    "django-redis": "with_django_redis",
}


def run_here(library, topic):
    """Runs one case in this process; the last line it prints is its verdict."""
    cases = load(library)
    try:
        cases[(library, topic)]()
    except Exception as error:
        traceback.print_exc()
        print("fail\t%s: %s" % (type(error).__name__, one_line(error)), flush=True)
        return
    print("pass\t", flush=True)


def one_line(text):
    return " ".join(str(text).split())[:300]


def load(library):
    from cases import CASES

    __import__(MODULES[library])
    return CASES


def run_apart(library, topic):
    """Runs one case in a process group of its own and returns its verdict."""
    command = [sys.executable, __file__, "--case", library, topic]
    errors = sys.stderr if os.environ.get("STOCK_VERBOSE") else subprocess.DEVNULL
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        return "fail\tno end within %d s" % LIMIT_SECONDS
    finally:
        # Also what the case started and did not end.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    verdicts = [line for line in output.splitlines() if line.startswith(("pass\t", "fail\t"))]
    return verdicts[-1] if verdicts else "fail\tended with %d" % process.returncode


def main():
    if sys.argv[1] == "--case":
        run_here(sys.argv[2], sys.argv[3])
        # Threads of a library that is stuck must not keep the process.
        os._exit(0)
    os.environ["STOCK_ADDRESS"] = sys.argv[1]
    libraries = sys.argv[2:] or list(MODULES)
    for library in libraries:
        for name, topic in list(load(library)):
            if name == library:
                print("python\t%s\t%s\t%s" % (library, topic, run_apart(library, topic)), flush=True)


if __name__ == "__main__":
    main()
