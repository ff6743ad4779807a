"""Requests a second against those of another server: the table of measurements, their interleaved rounds, and the record."""
import collections, json, os, statistics
from measure.acl import acl_read_length, acl_reads
from measure.servers import (KEY, LARGE, ROOT, ROUNDS, SMALL, TOKEN, bench, floor, floor_proxy, gateway, nginx_gateway, nginx_proxy,
                             nginx_return, proxy, token_length)

SECONDS = os.environ.get("SECONDS_EACH", "1")
# Part of the time that the servers must be busy: else the load, or another process, limits the requests a second.
BUSY = 0.8
RECORD = os.path.join(ROOT, "benches", "record.json")

# The path of the requests, the servers by label, and the numbers of connections. A ratio is the first server's to the second's;
# `benches/run profile` counts all of them.
Row = collections.namedtuple("Row", "path sides connections")
CACHE = "proxy_cache cache; proxy_cache_valid 200 1h;"
ROWS = {
    "proxy": Row(SMALL, {"keyward": proxy(), "nginx": nginx_proxy(), "floor": floor_proxy()}, (1, 8, 64, 256, 1000, 4000)),
    "proxy_unix": Row(SMALL, {"keyward": proxy(kind="unix"), "nginx": nginx_proxy(kind="unix"), "floor": floor_proxy(kind="unix")}, (64,)),
    "proxy_tls": Row(SMALL, {"keyward": proxy(scheme="https"), "nginx": nginx_proxy(scheme="https")}, (1, 8, 64, 256)),
    "proxy_large": Row(LARGE, {"keyward": proxy(), "nginx": nginx_proxy(), "floor": floor_proxy()}, (1, 8)),
    "proxy_tls_large": Row(LARGE, {"keyward": proxy(scheme="https"), "nginx": nginx_proxy(scheme="https")}, (1, 8)),
    "cached": Row(SMALL, {"keyward": proxy("--cached"), "nginx": nginx_proxy(more=CACHE), "floor": floor(lambda _: 1024)}, (1, 8, 64, 256)),
    "token": Row(TOKEN, {"keyward": bench("token"), "nginx": nginx_return(token_length), "floor": floor(token_length)}, (1, 8, 64, 256)),
    "gateway": Row("/api/v2/list", {"keyward": gateway(), "nginx": nginx_gateway()}, (1, 8, 64, 256)),
    "gateway_tls": Row("/api/v2/list", {"keyward": gateway("https"), "nginx": nginx_gateway("https")}, (1, 8, 64, 256)),
    "gateway_large": Row("/api/v2/blob", {"keyward": gateway(), "nginx": nginx_gateway()}, (1, 8)),
    # The cost of a feature: keyward with it against keyward without it.
    "audited": Row(SMALL, {"keyward": proxy("--audited"), "without": proxy()}, (8, 64, 256)),
    "callers": Row(SMALL, {"keyward": proxy("--callers", kind="unix"), "without": proxy(kind="unix")}, (8, 64)),
    # A response to the session's token is searched for it; a response to a token of the caller is not.
    "searched": Row(SMALL, {"keyward": proxy(), "without": proxy(headers=[KEY])}, (64,)),
    "acl_reads": Row("/", {"keyward": acl_reads(), "floor": floor(acl_read_length)}, (8, 64, 256)),
}


def measure(lab, name, record, is_recording):
    """Measures a row, prints each ratio beside the recorded one, and returns those that are worse by more than the noise."""
    row, worse = ROWS[name], []
    sides = dict(list(row.sides.items())[:2])
    servers = [starter(lab, lab.server_core) for starter in sides.values()]
    for connections in row.connections:
        series = collections.defaultdict(list)
        for number in range(ROUNDS):
            # In turn first: the speed of the machine may change while both are measured.
            order = (0, 1) if number % 2 else (1, 0)
            ours, base = [figures for _, figures in sorted(
                (index, lab.load(servers[index], row.path, connections, "--seconds", SECONDS, "--pid", str(servers[index].pid)))
                for index in order)]
            series["a second"].append(ours["rps"] / base["rps"])
            series["a CPU second"].append(base["cpu_us"] / ours["cpu_us"])
            series["busy"].append(min(it["rps"] * it["cpu_us"] / 1e6 for it in (ours, base)))
        busy = statistics.median(series["busy"])
        print(f"{name}, {connections} connections, to {list(sides)[1]}:", end="")
        for unit in ("a second", "a CPU second"):
            key = f"{name} {connections}, {unit}"
            ratio = Ratio(statistics.median(series[unit]), min(series[unit]), max(series[unit]))
            known = record.get(key)
            is_judged = unit == "a CPU second" or busy >= BUSY
            is_worse = is_judged and known and ratio.median < known.median - max(known.range(), ratio.range())
            print(f" requests {unit} {ratio}, {f'recorded {known}' if known else 'not recorded'}{': WORSE' if is_worse else ''};", end="")
            if is_recording and is_judged:
                record[key] = ratio
            elif is_worse:
                worse.append(key)
        print(f" servers busy for {busy:.0%}", flush=True)
    for server in servers:
        server.stop()
    return worse


class Ratio(collections.namedtuple("Ratio", "median min max")):
    """A ratio to another server, above 1 if keyward is better. Its noise is the range of its rounds, in the record or in the run."""

    def range(self):
        return self.max - self.min

    def __str__(self):
        return f"{self.median:.2f} ({self.min:.2f} to {self.max:.2f})"


def read_record():
    with open(RECORD) as file:
        return {key: Ratio(**it) for key, it in json.load(file).items()}


def write_record(record):
    lines = [json.dumps(key) + ": " + json.dumps({field: round(value, 3) for field, value in ratio._asdict().items()})
             for key, ratio in record.items()]
    with open(RECORD, "w") as file:
        file.write("{\n  " + ",\n  ".join(lines) + "\n}\n")


def print_table(record):
    """Prints the recorded ratios of requests a CPU second, and their ranges, by row and connections."""
    columns = sorted({connections for row in ROWS.values() for connections in row.connections})
    print(f"| row | {' | '.join(map(str, columns))} |\n|---|{'---|' * len(columns)}")
    for name in ROWS:
        cells = [str(record.get(f"{name} {connections}, a CPU second", "")) for connections in columns]
        print(f"| {name} | {' | '.join(cells)} |")
