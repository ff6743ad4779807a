"""The ACL server on the embedded store. Figures that are no ratios of requests a second."""
import concurrent.futures, json, os, statistics, subprocess, time, urllib.request
from measure.servers import ROUNDS, Server, free_port, memory_kib, wait_for_port


class AclProcess:
    """The program with the ACL server alone, on the store of a folder."""

    def __init__(self, lab, folder, pin=()):
        started, port = time.monotonic(), free_port()
        self.address = f"127.0.0.1:{port}"
        os.makedirs(folder, exist_ok=True)
        config = os.path.join(folder, "keyward.toml")
        with open(config, "w") as file:
            file.write(f'[acl]\nlisten = "tcp://{self.address}"\ndata_dir = "{folder}/acl"\nconnections = 12000\n')
        command = [*pin, lab.program("keyward"), "--log-level", "warn", "run", "--config", config]
        self.process = lab.popen(command)
        self.secret = ""
        wait_for_port(port)
        self.open_seconds = time.monotonic() - started

    def call(self, method, path, body=None):
        headers = {"X-Service-Token": self.secret} if self.secret else {}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address}{path}", method=method, data=data, headers=headers)
        with urllib.request.urlopen(request) as response:
            return json.load(response), response.headers

    def bootstrap(self):
        self.secret = self.call("PUT", "/v1/acl/bootstrap")[0]["SecretID"]

    def stop(self):
        self.process.terminate()
        self.process.wait()


def acl_reads():
    """Starts an ACL server; a read of a token by its accessor, authorised."""
    def start(lab, prefix):
        acl = AclProcess(lab, lab.path("acl"), prefix)
        acl.bootstrap()
        policy, _ = acl.call("PUT", "/v1/acl/policy", {"Name": "reads", "Rules": 'acl = "read"'})
        reader, _ = acl.call("PUT", "/v1/acl/token", {"Policies": [{"ID": policy["ID"]}], "Description": "a reader"})
        links = {"Policies": [{"ID": policy["ID"]}], "ServiceIdentities": [{"ServiceName": "web"}], "ExpirationTTL": "24h"}
        token, _ = acl.call("PUT", "/v1/acl/token", links)
        headers = ["X-Service-Token: " + reader["SecretID"]]
        return Server(acl.process, acl.address, headers=headers, path="/v1/acl/token/" + token["AccessorID"])
    return start


def acl_read_length(lab):
    """Returns the length of the body of such a read."""
    server = acl_reads()(lab, [])
    length = int(lab.load(server, None, 1, "--requests", "1")["body"])
    server.stop()
    return length


def creates(lab):
    """Creates of tokens over HTTP by 64 writers, against the store alone with the same rows and bytes in groups of that size."""
    rounds = []
    for _ in range(max(ROUNDS // 2, 1)):
        folder = lab.path("store")
        os.mkdir(folder)
        out = subprocess.run([lab.program("acl"), "creates", folder], stdout=subprocess.PIPE, check=True, text=True).stdout
        rounds.append({key: float(value) for key, value in (pair.split("=") for pair in out.split())})
        print(f"  {out.strip()}", flush=True)
    ratio = statistics.median(figures["http"] / figures["store"] for figures in rounds)
    print(f"durable creates over HTTP with 64 writers to the store alone with groups of that size: {ratio:.3f},"
          f" median of {len(rounds)} rounds", flush=True)


def waiters(lab, count=10000):
    """Many blocking queries and one write: time to the last response, against a bare hyper server; memory of each."""
    watch = lab.program("watch")
    acl = AclProcess(lab, lab.path("acl"), lab.server_core)
    acl.bootstrap()
    token, _ = acl.call("PUT", "/v1/acl/token", {"Description": "watched", "ServiceIdentities": [{"ServiceName": "web"}]})
    path = "/v1/acl/token/" + token["AccessorID"]
    header = "X-Service-Token: " + acl.secret
    length = lab.load(Server(acl.process, acl.address, headers=[header]), path, 1, "--requests", "1")["body"]
    floor = subprocess.Popen([*lab.server_core, watch, "floor", "127.0.0.1:0", f"{length:.0f}"], stdout=subprocess.PIPE, text=True)
    floor_address = floor.stdout.readline().strip()
    ratios_to_floor, waiter_kib = [], {"acl": [], "floor": []}
    for round_ in range(max(ROUNDS // 2, 1)):
        last_us = {}
        for name, address, pid in (("acl", acl.address, acl.process.pid), ("floor", floor_address, floor.pid)):
            _, headers = acl.call("GET", path)
            get = f"{path}?index={headers['X-Service-Index']}&wait=10m"
            body = json.dumps({"Description": f"watched {round_}", "ServiceIdentities": [{"ServiceName": "web"}]})
            before = memory_kib(pid)
            client = subprocess.Popen([*lab.load_core, watch, "wait", address, str(count), get, path, body, header],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert client.stdout.readline() == "waiting\n"
            wait_until_idle(pid)
            waiter_kib[name].append((memory_kib(pid) - before) / count)
            out = client.communicate("now\n")[0]
            times = dict(pair.split("=") for pair in out.split())
            last_us[name] = float(times["last_us"])
            print(f"  {name}: {out.strip()}, {waiter_kib[name][-1]:.1f} KiB each", flush=True)
        ratios_to_floor.append(last_us["acl"] / last_us["floor"])
    print(f"{count} blocking queries, one write, time to the last response to the floor's: {statistics.median(ratios_to_floor):.3f}, median of"
          f" {len(ratios_to_floor)} rounds; memory of each in the first round: {waiter_kib['acl'][0]:.1f} KiB"
          f" (floor {waiter_kib['floor'][0]:.1f})", flush=True)
    floor.terminate()
    acl.stop()


def wait_until_idle(pid):
    """Waits until a process uses no more CPU."""
    before = None
    while True:
        fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
        ticks = int(fields[11]) + int(fields[12])
        if ticks == before:
            return
        before = ticks
        time.sleep(0.5)


def fill_store(lab, folder, tokens):
    """Creates a store with this many tokens; returns the first one's secret, an accessor, seconds and maximum memory in MiB."""
    command = [lab.program("acl"), "fill", os.path.join(folder, "acl"), str(tokens)]
    os.mkdir(folder)
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    out = process.stdout.read()
    _, _, usage = os.wait4(process.pid, 0)
    ids = dict(pair.split("=") for pair in out.split())
    return ids["secret"], ids["accessor"], time.monotonic() - started, usage.ru_maxrss / 1024


def lists(lab, tokens=100000):
    """All tokens in one response: time, growth of the server's memory, and latency of other requests meanwhile."""
    folder = lab.path("store")
    secret, _, _, _ = fill_store(lab, folder, tokens)
    acl = AclProcess(lab, folder)
    acl.secret = secret
    acl.call("GET", "/v1/acl/token/self")
    before = memory_kib(acl.process.pid)
    for _ in range(3):
        open(f"/proc/{acl.process.pid}/clear_refs", "w").write("5")
        started, size = time.monotonic(), 0
        request = urllib.request.Request(f"http://{acl.address}/v1/acl/tokens", headers={"X-Service-Token": secret})
        with urllib.request.urlopen(request) as response, concurrent.futures.ThreadPoolExecutor() as threads:
            others = threads.submit(lab.load, Server(acl.process, acl.address, headers=["X-Service-Token: " + secret]),
                                    "/v1/acl/token/self", 1, "--requests", "1000")
            while chunk := response.read(1 << 20):
                size += len(chunk)
            seconds, other = time.monotonic() - started, others.result()
        print(f"list of {tokens} tokens: {size / 2**20:.1f} MiB in {seconds:.2f} s; memory before {before / 1024:.1f} MiB, at most"
              f" {memory_kib(acl.process.pid, 'VmHWM') / 1024:.1f} MiB; other requests p50 {other['p50_us']:.0f} us, at most"
              f" {other['max_us']:.0f} us", flush=True)
    acl.stop()


def million(lab, tokens=1000000):
    """A store of this many tokens: time to create and to open it, and memory."""
    folder = lab.path("store")
    secret, accessor, seconds, max_mib = fill_store(lab, folder, tokens)
    size = os.path.getsize(os.path.join(folder, "acl", "acl.redb")) / 2**20
    print(f"{tokens} tokens made in {seconds:.0f} s ({tokens / seconds:.0f} a second), {size:.0f} MiB on disk, memory at"
          f" most {max_mib:.0f} MiB", flush=True)
    acl = AclProcess(lab, folder)
    acl.secret = secret
    started = time.monotonic()
    acl.call("GET", "/v1/acl/token/" + accessor)
    print(f"opened in {acl.open_seconds:.2f} s, first read {(time.monotonic() - started) * 1000:.1f} ms, resident"
          f" {memory_kib(acl.process.pid) / 1024:.1f} MiB, at most {memory_kib(acl.process.pid, 'VmHWM') / 1024:.1f} MiB", flush=True)
    acl.process.kill()
    acl.process.wait()
    acl = AclProcess(lab, folder)
    print(f"opened after kill -9 in {acl.open_seconds:.2f} s, at most {memory_kib(acl.process.pid, 'VmHWM') / 1024:.1f} MiB", flush=True)
    acl.stop()
