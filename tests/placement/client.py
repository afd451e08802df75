"""Places, writes or reads keys through pylibmc, as the JSON on standard input
says.

{"mode": "place" | "set" | "get", "cases": [{"servers": [...],
"behaviors": {...}, "late": bool, "keys": [...]}]}; "late" behaviors are set
after the servers. Prints a list for each case: of "place" the index of each
key's server, of "set" and "get" the keys that could not be set or got with
their own bytes as value.
"""

import json
import sys

import pylibmc


def client_of(case):
    if case["late"]:
        client = pylibmc.Client(case["servers"])
        client.behaviors = case["behaviors"]
        return client
    return pylibmc.Client(case["servers"], behaviors=case["behaviors"])


def is_done(client, mode, key):
    value = key.encode()
    if mode == "set":
        return client.set(key, value)
    return client.get(key) == value


def answer(client, mode, keys):
    if mode == "place":
        return [client.hash(key) for key in keys]
    return [key for key in keys if not is_done(client, mode, key)]


def main():
    work = json.load(sys.stdin)
    answers = []
    for case in work["cases"]:
        client = client_of(case)
        answers.append(answer(client, work["mode"], case["keys"]))
        client.disconnect_all()
    json.dump(answers, sys.stdout)


main()
