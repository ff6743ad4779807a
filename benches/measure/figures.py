"""Memory and wake-ups without requests, and the cost of an audit's record."""
import os, socket, statistics, subprocess, time
from measure.servers import KEY, ROUNDS, SMALL, TOKEN, bench, context_switches, gateway, memory_kib, proxy


def memory(lab):
    """Resident memory: of a server without requests, with its wake-ups; with 1,000 idle connections; with 100 times 10 MiB at once."""
    server = bench("token", kind="unix")(lab, [])
    lab.load(server, TOKEN, 8, "--requests", "8000")
    time.sleep(3)
    before = context_switches(server.pid)
    time.sleep(20)
    print(f"token, idle: resident {memory_kib(server.pid) / 1024:.1f} MiB,"
          f" {(context_switches(server.pid) - before) / 20:.2f} wake-ups a second", flush=True)
    server.stop()
    for scheme in lab.ports:
        server = proxy(scheme=scheme)(lab, [])
        lab.load(server, SMALL, 8, "--requests", "8000")
        before = memory_kib(server.pid)
        host, _, port = server.address.partition(":")
        connections = [socket.create_connection((host, int(port))) for _ in range(1000)]
        for connection in connections:
            connection.sendall(f"GET {SMALL} HTTP/1.1\r\nHost: localhost\r\n{KEY}\r\nX-Vault-Request: true\r\n\r\n".encode())
            connection.recv(65536)
        print(f"proxy, {scheme} upstream: resident {before / 1024:.1f} MiB, with 1,000 idle connections"
              f" {memory_kib(server.pid) / 1024:.1f} MiB", flush=True)
        server.stop()
        server = gateway(scheme)(lab, [])
        before = memory_kib(server.pid)
        lab.load(server, "/api/v2/blob", 100, "--requests", "300")
        print(f"gateway, {scheme} upstream, 100 times 10 MiB at once: resident {before / 1024:.1f} MiB before, at most"
              f" {memory_kib(server.pid, 'VmHWM') / 1024:.1f} MiB", flush=True)
        server.stop()


def audit_record(lab):
    """A record of an audit from the queue to the file, beside a bare write."""
    program, rounds = lab.program("audit"), []
    for _ in range(ROUNDS):
        out = subprocess.run([*lab.server_core, program, lab.folder], stdout=subprocess.PIPE, check=True, text=True).stdout
        rounds.append(dict(pair.split("=") for pair in out.split()))
        os.remove(f"{lab.folder}/audit.jsonl")
    record_us, floor_us = (statistics.median(float(it[figure]) for it in rounds) for figure in ("record_us", "floor_us"))
    print(f"audit: {record_us:.2f} us a record of {rounds[0]['bytes']} bytes, a bare write {floor_us:.2f} us, median of {ROUNDS} rounds",
          flush=True)
