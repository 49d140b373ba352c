#!/usr/bin/env python3
"""Silent connections to the ports of OpenMPI's mpirun while it starts a job of two ranks.

    bench/strangers.py COUNT PROGRAM...    COUNT connections to each port that mpirun opens, one port a run

Says for each port whether the job ended while they were open, and otherwise whether it did once they closed.
"""
import os
import socket
import subprocess
import sys
import time

SECONDS = 20  # for the job, and again once the connections are closed


def listening(pid):
    """Returns (family, address) of the TCP sockets at which a process listens."""
    inodes = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = []
    for family in ("tcp", "tcp6"):
        with open(f"/proc/net/{family}", encoding="ascii") as table:
            rows = [line.split() for line in table]
        found += [(family, row[1]) for row in rows if len(row) > 9 and row[3] == "0A" and row[9] in inodes]
    return found


def try_port(which, count, program):
    job = subprocess.Popen(["mpirun", "-np", "2", *program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    begin, connections = time.time(), []
    while job.poll() is None and not connections and time.time() < begin + 5:
        for family, address in listening(job.pid):
            host, port = address.split(":")
            if which != (family, host):
                continue
            for _ in range(count):
                one = socket.socket(socket.AF_INET6 if family == "tcp6" else socket.AF_INET)
                one.connect(("::1" if family == "tcp6" else "127.0.0.1", int(port, 16)))
                connections.append(one)
    try:
        code, outcome = job.wait(SECONDS), "ended beside them"
    except subprocess.TimeoutExpired:
        for one in connections:
            one.close()
        try:
            code, outcome = job.wait(SECONDS), "hung until they closed"
        except subprocess.TimeoutExpired:
            job.terminate()
            code, outcome = job.wait(), "hung"
    print(f"{which}: {len(connections)} connections: {outcome}, exit code {code}")


if __name__ == "__main__":
    for which in [("tcp", "0100007F"), ("tcp", "00000000"), ("tcp6", "0" * 32)]:
        try_port(which, int(sys.argv[1]), sys.argv[2:])
