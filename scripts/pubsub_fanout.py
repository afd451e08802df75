#!/usr/bin/env python3
"""Deliveries per CPU-second of one channel with many subscribers.

pubsub_fanout.py PORT SUBSCRIBERS MESSAGES DEPTH PAYLOAD PID [PID ...]

Subscribes on PORT, publishes MESSAGES with DEPTH PUBLISH commands at a time,
waits until every subscriber has every byte, and divides the deliveries by the
CPU time that the processes PID (all of the path but this one) took meanwhile.
"""

import os
import select
import socket
import sys

PORT, SUBSCRIBERS, MESSAGES, DEPTH, PAYLOAD = map(int, sys.argv[1:6])
PIDS = sys.argv[6:]


def connect():
    client = socket.create_connection(("127.0.0.1", PORT))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def cpu_seconds():
    ticks = 0
    for pid in PIDS:
        with open("/proc/%s/stat" % pid) as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def read_exactly(client, length):
    data = b""
    while len(data) < length:
        data += client.recv(length - len(data))
    return data


def main():
    subscribers = [connect() for _ in range(SUBSCRIBERS)]
    confirmation = b"*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"
    for client in subscribers:
        client.sendall(b"SUBSCRIBE news\r\n")
    for client in subscribers:
        assert read_exactly(client, len(confirmation)) == confirmation
    payload = b"x" * PAYLOAD
    publish = b"*3\r\n$7\r\nPUBLISH\r\n$4\r\nnews\r\n$%d\r\n%s\r\n" % (PAYLOAD, payload)
    message = b"*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$%d\r\n%s\r\n" % (PAYLOAD, payload)
    ready = select.epoll()
    by_fd = {client.fileno(): client for client in subscribers}
    for client in subscribers:
        client.setblocking(False)
        ready.register(client, select.EPOLLIN)
    publisher = connect()
    started = cpu_seconds()
    sent = received = 0
    expected = MESSAGES * SUBSCRIBERS * len(message)
    while received < expected:
        if sent < MESSAGES and received >= sent * SUBSCRIBERS * len(message):
            count = min(DEPTH, MESSAGES - sent)
            publisher.sendall(publish * count)
            replies = 0
            while replies < count:
                replies += publisher.recv(1 << 16).count(b"\r\n")
            sent += count
        for fd, _ in ready.poll(10):
            received += len(by_fd[fd].recv(1 << 20))
    taken = cpu_seconds() - started
    deliveries = MESSAGES * SUBSCRIBERS
    print("%d deliveries, %.2f CPU-seconds, %.0f per CPU-second" % (deliveries, taken, deliveries / taken))


main()
