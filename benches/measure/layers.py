"""Costs of a program by layer, from callgrind's output.

Optimized Rust inlines most functions, so that function names tell little. The address of each instruction has a chain of inlined
source files: the innermost one that LAYERS has decides. An instruction whose files are all in no layer (the standard library, libc,
`http`, `bytes`, `httparse`, `memchr`, aws-lc, `src/http/http1`) belongs to the callers of its function, shared out by what callgrind
says that each call cost.
"""
import collections, re, subprocess

# Part of the path of a source file, and its layer; the first match decides.
LAYERS = [
    ("src/machine/os/allocator.rs", "zeroing"),
    ("mimalloc", "allocator"),
    ("benches/counting_allocator.rs", "allocator"),
    ("src/machine/clock", "clocks"),
    ("src/telemetry/audit", "audit"), ("src/http/audited.rs", "audit"),
    ("src/telemetry/metrics", "metrics"), ("/prometheus-client-", "metrics"), ("/metrics.rs", "metrics"),
    ("src/http/guard", "guard"),
    ("src/http/peer", "callers"), ("src/agent/callers", "callers"), ("src/agent/caller_tokens", "callers"),
    ("src/agent/api_proxy/rules", "rules"), ("src/agent/api_proxy/path.rs", "rules"), ("src/agent/api_proxy/query.rs", "rules"),
    ("src/agent/api_proxy/spelling.rs", "rules"), ("src/agent/api_proxy/namespace.rs", "rules"),
    ("src/agent/api_proxy/request_checks.rs", "rules"), ("src/agent/api_proxy/login_path.rs", "rules"),
    ("src/agent/api_proxy/leak_filter.rs", "leak filter"), ("src/agent/api_proxy/token_search.rs", "leak filter"),
    ("src/agent/api_proxy/redact_token.rs", "leak filter"),
    ("src/agent/api_proxy/cache", "cache"), ("src/agent/api_proxy/response_cache.rs", "cache"),
    ("src/agent/api_proxy", "router"), ("src/agent/server_client", "router"),
    ("src/agent/local_api", "local API"), ("src/agent/json_response.rs", "local API"),
    ("src/http/reverse_proxy", "upstream client"), ("src/http/client", "upstream client"), ("src/http/body_buffer", "upstream client"),
    ("src/http/tls", "TLS"), ("/rustls-", "TLS"), ("/tokio-rustls-", "TLS"),
    ("src/http/server", "HTTP server"),
    ("/tokio-", "runtime"), ("/mio-", "runtime"),
]


def read_callgrind(path):
    """Returns the cost of each (object, function, address), and the calls as (caller's key, callee's (object, function), count, cost)."""
    names, costs, calls = {}, collections.Counter(), []
    current, callee, count = {}, {}, None

    def name(kind, text):
        # "(7) name" the first time, then "(7)"; objects, files and functions are numbered apart.
        number, _, full = text.partition(" ")
        space = {"ob": "ob", "fn": "fn"}.get(kind[-2:], "fl")
        if full:
            names[space, number] = full
        return names[space, number]

    for line in open(path):
        if match := re.match(r"(c?(?:ob|fn|fl|fi|fe))=(.*)", line):
            kind, text = match.groups()
            (callee if kind[0] == "c" else current)[kind[-2:]] = name(kind, text)
        elif line.startswith("calls="):
            count = int(line[6:].split()[0])
        elif line.startswith("0x"):
            address, cost = line.split()[:2]
            key = current["ob"], current["fn"], int(address, 16)
            if count is None:
                costs[key] += int(cost)
            else:
                calls.append((key, (callee.get("ob", current["ob"]), callee["fn"]), count, int(cost)))
                callee, count = {}, None
    return costs, calls


def source_chains(program, addresses):
    """Returns the source files of each address, innermost first."""
    text = "\n".join(map(hex, addresses))
    out = subprocess.run(["addr2line", "-i", "-a", "-e", program], input=text, stdout=subprocess.PIPE, check=True, text=True).stdout
    chains = []
    for line in out.splitlines():
        if line.startswith("0x"):
            chains.append([])
        else:
            chains[-1].append(line.rpartition(":")[0])
    return dict(zip(addresses, chains, strict=True))


def layer_of(chain):
    for file in chain:
        for part, layer in LAYERS:
            if part in file:
                return layer
    return None


def layers(costs, calls, program):
    """Returns the instructions of each layer of a program."""
    places = {key for key in costs} | {caller for caller, *_ in calls}
    addresses = sorted({address for object_, _, address in places if object_ == program})
    chains = source_chains(program, addresses)
    known = {key: layer_of(chains[key[2]]) for key in places if key[0] == program}
    callers = collections.defaultdict(list)
    for caller, callee, _, cost in calls:
        callers[callee].append((caller, cost))
    result, loose = collections.Counter(), collections.Counter()
    for (object_, function, address), cost in costs.items():
        if layer := known.get((object_, function, address)):
            result[layer] += cost
        else:
            loose[object_, function] += cost
    # Functions of no layer call each other, some recursively: what is still left after these rounds is a trace.
    for _ in range(64):
        pending, loose = loose, collections.Counter()
        for function, cost in pending.items():
            total = sum(share for _, share in callers[function])
            if not total:
                result["other"] += cost
            for caller, share in callers[function] if total else ():
                if layer := known.get(caller):
                    result[layer] += cost * share / total
                else:
                    loose[caller[:2]] += cost * share / total
    result["other"] += sum(loose.values())
    return result
