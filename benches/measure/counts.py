"""Counts for each request, which repeat on a busy machine: the difference of two runs with one request and with ten times as many.

instructions   user instructions (callgrind); of nginx as one process
allocations    calls of the allocator, and the bytes that were freed, which keyward zeroes; of nginx the calls of libc's allocator
system calls   strace -c; epoll_wait is one of them
wake-ups       voluntary context switches, in a run that nothing observes
cache misses   perf stat, where the kernel has the processor's counters
"""
import collections, re, shutil, signal, subprocess
from measure.layers import layers, read_callgrind
from measure.servers import context_switches

# callgrind runs a program some fifty times slower: with more connections the listener's time limits would close them.
CALLGRIND_CONNECTIONS = 256
ALLOCATORS = {"malloc", "calloc", "realloc", "posix_memalign", "memalign"}


def profile(lab, starter, path, connections):
    """Returns the counts of a request by name, and the instructions of a request by layer."""
    few = connections * -(-1000 // connections)
    requests = few, 10 * few
    counts, by_layer = collections.Counter(), collections.Counter()
    for sign, number in zip((-1, 1), requests):
        share = sign / (requests[1] - requests[0])
        for name, count in trace(lab, starter, path, connections, number).items():
            counts[name] += share * count
        if connections <= CALLGRIND_CONNECTIONS:
            instructions, more = simulate(lab, starter, path, connections, number)
            for name, count in more.items():
                counts[name] += share * count
            for layer, count in instructions.items():
                by_layer[layer] += share * count
    if by_layer:
        counts["instructions"] = sum(by_layer.values())
    return {**counts, **observe(lab, starter, path, connections, requests[1])}, by_layer


def simulate(lab, starter, path, connections, requests):
    """Returns the instructions by layer, and the calls of clock and libc's allocator."""
    out = lab.path("callgrind")
    # rustix asks prctl for the address of the vDSO, which valgrind takes away: without an answer it asks /proc, where valgrind hides it.
    server = starter(lab, ["strace", "-f", "-o", "/dev/null", "--seccomp-bpf", "-e", "trace=prctl", "-e", "inject=prctl:error=EINVAL",
                           "valgrind", "--tool=callgrind", "--dump-instr=yes", "--dump-line=no", "--compress-pos=no",
                           f"--callgrind-out-file={out}"])
    words = open(f"/proc/{server.pid}/cmdline").read().split("\0")
    program = next(word for word in words[1:] if not word.startswith("--"))
    lab.load(server, path, connections, "--requests", str(requests))
    server.stop()
    costs, calls = read_callgrind(out)
    counts = collections.Counter()
    for (object_, *_), (_, function), count, _ in calls:
        if object_ == program and "clock_gettime" in function:
            counts["clock reads"] += count
        elif "/libc.so" not in object_ and function in ALLOCATORS:
            counts["allocations"] += count
    return layers(costs, calls, program), counts


def trace(lab, starter, path, connections, requests):
    """Returns the system calls by name with their sum, and what a server of ours counted in its allocator."""
    server = starter(lab, ["strace", "-f", "-c"])
    lab.load(server, path, connections, "--requests", str(requests))
    counts = collections.Counter()
    for line in server.stop().splitlines():
        fields = line.split()
        if line.startswith("allocations="):
            counts.update({name.replace("_", " "): int(count) for name, count in (pair.split("=") for pair in fields)})
        elif len(fields) >= 5 and fields[0].replace(".", "").isdigit():
            counts["system calls" if fields[-1] == "total" else fields[-1] + "()"] = int(fields[3])
    return counts


def observe(lab, starter, path, connections, requests):
    """Returns wake-ups and cache misses of a request; `None` for cache misses that the kernel does not tell."""
    server = starter(lab, lab.server_core)
    command = ["perf", "stat", "-x,", "-e", "cache-misses", "-p", str(server.pid)] if shutil.which("perf") else ["sleep", "infinity"]
    perf = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    before = context_switches(server.pid)
    lab.load(server, path, connections, "--requests", str(requests))
    counts = {"wake-ups": (context_switches(server.pid) - before) / requests, "cache misses": None}
    perf.send_signal(signal.SIGINT)
    if misses := re.search(r"^(\d+),,cache-misses", perf.communicate()[1], re.MULTILINE):
        counts["cache misses"] = int(misses.group(1)) / requests
    server.stop()
    return counts


def report(lab, name, row, connection_counts):
    """Prints the profile of a row's servers as tables of Markdown."""
    columns = ["instructions", "allocations", "freed bytes", "system calls", "epoll_wait()", "wake-ups", "clock reads", "cache misses"]
    print(f"\n### {name}\n\n| connections | server | {' | '.join(columns)} |\n|---|---|{'---|' * len(columns)}")
    by_connections = {}
    for connections in connection_counts:
        for label, starter in row.sides.items():
            counts, by_layer = profile(lab, starter, row.path, connections)
            cells = [describe(counts[column]) if column in counts else "" for column in columns]
            print(f"| {connections} | {label} | {' | '.join(cells)} |", flush=True)
            if label == "keyward" and by_layer:
                by_connections[connections] = by_layer
    if by_connections:
        most = collections.Counter()
        for by_layer in by_connections.values():
            most |= by_layer
        names = [layer for layer, count in most.most_common() if count >= 1]
        print(f"\n| layer | {' | '.join(f'{connections} connections' for connections in by_connections)} |")
        print(f"|---|{'---|' * len(by_connections)}")
        for layer in names:
            print(f"| {layer} | {' | '.join(describe(by_layer[layer]) for by_layer in by_connections.values())} |", flush=True)


def describe(count):
    if count is None:
        return "not told"
    # The difference of two runs may be a little below zero.
    return f"{max(count, 0):,.{0 if count >= 100 else 1 if count >= 10 else 2}f}"
