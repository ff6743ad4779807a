"""Programs under test, each with the load generator's way to it. A starter takes the lab and a command's prefix, and starts one."""
import json, os, re, shutil, signal, socket, subprocess, time, urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SMALL, LARGE, TOKEN = "/v1/secret/data/small", "/v1/secret/data/large", "/agent/v1/token"
ROUNDS = int(os.environ.get("ROUNDS", "7"))
KEY = "X-Vault-Token: " + "k" * 43
# The profile of packages, with line tables, which change no instruction.
PROFILE = ["--profile", "dist"] + [word for setting in ('debug="line-tables-only"', 'strip="none"', 'package.keyward.strip="none"')
                                   for word in ("--config", "profile.dist." + setting)]


class Lab:
    """A folder, the programs, an upstream, and the cores: one for the server under test, another for load and upstream."""

    def __init__(self, folder):
        self.folder, self.programs, self.processes, self.count = folder, {}, [], 0
        cores = sorted(os.sched_getaffinity(0))
        self.server_core, self.load_core = (["taskset", "-c", str(core)] for core in (cores[0], cores[-1]))
        self.ports = {"http": free_port(), "https": free_port()}
        os.chmod(folder, 0o755)
        self.start_upstream()

    def program(self, name):
        """Returns the path of a benchmark, or of the program itself; builds it first."""
        if name not in self.programs:
            # A benchmark is built with the program.
            command = ["cargo", "bench", *PROFILE, "--no-run", "--quiet", "--message-format=json",
                       "--bench", "load" if name == "keyward" else name]
            lines = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
            for line in filter(lambda line: line.get("executable"), map(json.loads, lines)):
                if line["target"]["kind"] == ["bench"] or not line["profile"]["test"]:
                    self.programs[line["target"]["name"]] = line["executable"]
        return self.programs[name]

    def path(self, name):
        """Returns a new path in the folder."""
        self.count += 1
        return os.path.join(self.folder, f"{self.count}.{name}")

    def start_upstream(self):
        """Starts an nginx with a secret of 1 KiB, a list whose links point to itself, and 10 MiB, over both schemes."""
        secret = {"data": {"data": {"password": ""}, "metadata": {"version": 1}}, "lease_id": "", "lease_duration": 0}
        secret["data"]["data"]["password"] = "x" * (1024 - len(json.dumps(secret)))
        os.makedirs(self.folder + os.path.dirname(LARGE))
        with open(self.folder + LARGE, "wb") as file:
            file.write(os.urandom(10 * 2**20))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE",
                        "-keyout", f"{self.folder}/key.pem", "-out", f"{self.folder}/cert.pem"], check=True, stderr=subprocess.DEVNULL)
        servers = ""
        for scheme, port in self.ports.items():
            links = {name: f"{scheme}://127.0.0.1:{port}/api/v2/list?page%5Bnumber%5D={number}" for name, number in
                     {"self": 1, "next": 2, "last": 9}.items()}
            page = {"data": [{"id": "org", "type": "organizations", "attributes": {"name": ""}}], "links": links}
            page["data"][0]["attributes"]["name"] = "x" * (1024 - len(json.dumps(page)))
            tls = " ssl; ssl_certificate cert.pem; ssl_certificate_key key.pem" if scheme == "https" else ""
            servers += f"""server {{ listen 127.0.0.1:{port}{tls}; root {self.folder};
              location = {SMALL} {{ default_type application/json; return 200 '{json.dumps(secret)}'; }}
              location = /api/v2/list {{ default_type application/vnd.api+json; return 200 '{json.dumps(page)}'; }}
              location = /api/v2/blob {{ default_type application/octet-stream; alias {self.folder}{LARGE}; }} }}"""
        self.start_nginx(servers, self.load_core)
        for port in self.ports.values():
            wait_for_port(port)

    def start_nginx(self, servers, prefix):
        """Starts an nginx as one process, so that counts are those of its worker."""
        config = self.path("nginx")
        with open(config, "w") as file:
            file.write(f"""daemon off; master_process off; pid {config}.pid; error_log {config}.log;
worker_rlimit_nofile 20000;
events {{ worker_connections 18000; }}
http {{
  access_log off; keepalive_requests 1000000000; sendfile on; tcp_nopush off; proxy_cache_path {config}.cache keys_zone=cache:1m;
  client_body_temp_path {config}.1; proxy_temp_path {config}.2; fastcgi_temp_path {config}.3;
  uwsgi_temp_path {config}.4; scgi_temp_path {config}.5;
  {servers}
}}
""")
        return self.popen([*prefix, find_nginx(), "-p", self.folder, "-c", config])

    def popen(self, command, **options):
        """Starts a process that ends with the lab."""
        self.processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options))
        return self.processes[-1]

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()

    def load(self, server, path, connections, *arguments):
        """Runs the load generator on a server; returns its figures by name."""
        command = [*self.load_core, self.program("load"), server.kind, server.address, "--connections", str(connections), "--path",
                   server.path or path, *arguments, *(word for header in server.headers for word in ("--header", header))]
        out = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
        return {name: float(value) for name, value in (pair.split("=") for pair in out.split())}


class Server:
    """A server under test. Without an address, the program prints it."""

    def __init__(self, process, address=None, kind="tcp", headers=(), path=None):
        self.process, self.kind, self.headers, self.path = process, kind, headers, path
        if address and kind == "tcp":
            wait_for_port(int(address.rpartition(":")[2]))
        self.address = address or process.stdout.readline().strip()
        # strace runs the server as a child.
        child = open(f"/proc/{process.pid}/task/{process.pid}/children").read().split()
        self.pid = int(child[0]) if child else process.pid

    def stop(self):
        """Ends the server; returns what it and its wrapper wrote on standard error."""
        while True:
            # nginx may miss a signal that comes before it waits for events.
            os.kill(self.pid, signal.SIGTERM)
            try:
                return self.process.communicate(timeout=5)[1]
            except subprocess.TimeoutExpired:
                continue


def bench(name, *arguments, kind="tcp", headers=()):
    """Starts a benchmark's server; `arguments` follow its address."""
    def start(lab, prefix):
        address = "127.0.0.1:0" if kind == "tcp" else lab.path("sock")
        words = [str(word(lab)) if callable(word) else word for word in arguments]
        return Server(lab.popen([*prefix, lab.program(name), kind, address, *words], cwd=lab.folder), kind=kind, headers=headers)
    return start


def proxy(*flags, kind="tcp", scheme="http", headers=()):
    trust = ["cert.pem"] if scheme == "https" else []
    return bench("proxy", lambda lab: f"{scheme}://127.0.0.1:{lab.ports[scheme]}", *trust, *flags, kind=kind, headers=headers)


def floor_proxy(kind="tcp"):
    return bench("floor_proxy", lambda lab: f"127.0.0.1:{lab.ports['http']}", kind=kind)


def floor(length, kind="tcp"):
    return bench("floor", length, kind=kind)


def nginx(location, kind="tcp", scheme="http"):
    """Starts an nginx with this location, which may forward to `{scheme}://upstream`."""
    def start(lab, prefix):
        address = f"127.0.0.1:{free_port()}" if kind == "tcp" else lab.path("sock")
        trust = "proxy_ssl_trusted_certificate cert.pem; proxy_ssl_verify on; proxy_ssl_name 127.0.0.1;" if scheme == "https" else ""
        text = location(lab) if callable(location) else location
        process = lab.start_nginx(f"""upstream upstream {{ server 127.0.0.1:{lab.ports[scheme]}; keepalive 4096; }}
          server {{ listen {"unix:" * (kind == "unix")}{address} backlog=4096; {trust}
            location / {{ default_type application/json; {text} }} }}""", prefix)
        if kind == "unix":
            while not os.path.exists(address):
                time.sleep(0.01)
        return Server(process, address, kind)
    return start


def nginx_proxy(kind="tcp", scheme="http", header=f"X-Vault-Token hvs.{'x' * 91}", more=""):
    return nginx(f'proxy_pass {scheme}://upstream; proxy_http_version 1.1; proxy_set_header Connection "";'
                 f" proxy_set_header {header}; {more}", kind, scheme)


def nginx_return(length):
    return nginx(lambda lab: f"return 200 '{'x' * length(lab)}';")


def token_length(lab):
    """Returns the length of the body of a token read, so that others send as much."""
    server = bench("token")(lab, [])
    length = int(lab.load(server, TOKEN, 1, "--requests", "1")["body"])
    server.stop()
    return length


def gateway(scheme="http"):
    def start(lab, prefix):
        port, config = free_port(), lab.path("toml")
        with open(f"{config}.token", "w") as file:
            file.write("a-token-of-the-platform")
        with open(config, "w") as file:
            file.write(f"""[gateway]
upstream = "{scheme}://127.0.0.1:{lab.ports[scheme]}"
listen = "tcp://127.0.0.1:{port}"
token_file = "{config}.token"
local_token_file = "{config}.local"
requests_per_second = 0
""" + (f'ca_file = "{lab.folder}/cert.pem"\n' if scheme == "https" else ""))
        process = lab.popen([*prefix, lab.program("keyward"), "--log-level", "warn", "run", "--config", config])
        wait_for_port(port)
        local_token = open(f"{config}.local").read().strip()
        return Server(process, f"127.0.0.1:{port}", headers=[f"Authorization: Bearer {local_token}"])
    return start


def nginx_gateway(scheme="http"):
    return nginx_proxy(scheme=scheme, header='Authorization "Bearer a-token-of-the-platform"')


def find_nginx():
    """Returns the path of nginx: from PATH, or of Debian's package unpacked under target/tools."""
    tools = os.path.join(ROOT, "target", "tools", "nginx")
    unpacked = os.path.join(tools, "usr", "sbin", "nginx")
    if installed := shutil.which("nginx"):
        return installed
    if not os.path.exists(unpacked):
        os.makedirs(tools, exist_ok=True)
        subprocess.run(["apt-get", "download", "-qq", "nginx"], cwd=tools, check=True)
        package = next(name for name in os.listdir(tools) if name.endswith(".deb"))
        subprocess.run(["dpkg", "-x", package, "."], cwd=tools, check=True)
    return unpacked


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_for_port(port):
    """Waits until a server accepts connections."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.01)


def memory_kib(pid, name="VmRSS"):
    return int(re.search(name + r":\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1))


def context_switches(pid):
    """Returns the voluntary context switches of a process's threads, each of which ends with a wake-up."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        text = open(f"/proc/{pid}/task/{task}/status").read()
        total += int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", text).group(1))
    return total
