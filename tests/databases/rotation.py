"""Rotates database credentials under load: pgbench -> pgbouncer -> PostgreSQL, with keyward between Vault's API and pgbouncer.

Vault is a fake of this file: it has the API that keyward calls, and makes and drops real roles of PostgreSQL as Vault's database
engine does.
"""

import glob
import http.server
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

TOOLS = sys.argv[1]
TTL = 12
SECONDS = 45
NOBODY = 65534
BIN = glob.glob(f"{TOOLS}/usr/lib/postgresql/*/bin")[0]
SHARE = glob.glob(f"{TOOLS}/usr/share/postgresql/*")[0]
WORK = tempfile.mkdtemp(prefix="keyward-databases-")
os.chmod(WORK, 0o755)
os.chown(WORK, NOBODY, NOBODY)
# A copy that another user can run, wherever the original is.
KEYWARD = shutil.copy(sys.argv[2], f"{WORK}/keyward")


def as_nobody(command, **options):
    return subprocess.Popen(command, user=NOBODY, group=NOBODY, extra_groups=[], cwd=WORK, **options)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


POSTGRES, POOL, VAULT = free_port(), free_port(), free_port()


def psql(statement):
    command = [f"{BIN}/psql", "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-h", WORK, "-p", str(POSTGRES), "-U", "owner", "app"]
    return subprocess.run([*command, "-c", statement], check=True, capture_output=True, text=True).stdout


class Roles:
    """Dynamic roles: each is dropped when its lease ends, or is revoked."""

    def __init__(self):
        self.made, self.dropped, self.ends, self.lock = [], [], {}, threading.Lock()

    def make(self):
        name, password = f"v-app-{len(self.made)}", secrets.token_hex(12)
        valid = time.strftime("%Y-%m-%d %H:%M:%S+00", time.gmtime(time.time() + TTL))
        psql(f"CREATE ROLE \"{name}\" LOGIN PASSWORD '{password}' VALID UNTIL '{valid}' IN ROLE app_rights")
        with self.lock:
            self.made.append(name)
            self.ends[name] = time.monotonic() + TTL
        return name, password

    def drop(self, name):
        with self.lock:
            if self.ends.pop(name, None) is None:
                return
        left = psql(f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{name}'").strip()
        # As Vault's default statements do; a connection that is still open would fail its next query.
        psql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{name}'")
        psql(f'DROP ROLE "{name}"')
        self.dropped.append((name, int(left)))

    def expire(self):
        while True:
            time.sleep(0.1)
            for name in [name for name, end in list(self.ends.items()) if end < time.monotonic()]:
                self.drop(name)


ROLES = Roles()


class Vault(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=None):
        data = json.dumps(body).encode() if body is not None else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle_call(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        token = {"accessor": "accessor", "policies": ["default"], "renewable": True}
        if self.path == "/v1/auth/approle/login":
            auth = {**token, "client_token": "hvs.test", "lease_duration": 3600, "token_type": "service", "entity_id": ""}
            self.reply(200, {"auth": auth})
        elif self.path == "/v1/auth/token/lookup-self":
            data = {**token, "id": "hvs.test", "ttl": 3600, "creation_ttl": 3600, "type": "service", "path": "auth/approle/login"}
            self.reply(200, {"data": data})
        elif self.path == "/v1/database/creds/app":
            name, password = ROLES.make()
            data = {"username": name, "password": password}
            self.reply(200, {"lease_id": f"database/creds/app/{name}", "lease_duration": TTL, "renewable": False, "data": data})
        elif self.path == "/v1/sys/leases/revoke":
            ROLES.drop(body["lease_id"].rsplit("/", 1)[1])
            self.reply(204)
        else:
            self.reply(404, {"errors": []})

    do_GET = do_POST = do_PUT = handle_call


def wait_for(check, what):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if check():
            return
        time.sleep(0.1)
    raise SystemExit(f"databases: {what} took more than 30 s; see {WORK}")


def write(name, text, mode=0o644):
    path = os.path.join(WORK, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)
    os.chown(path, NOBODY, NOBODY)
    return path


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def log(name):
    return open(os.path.join(WORK, name), "w", encoding="utf-8")


def start_postgres():
    data = f"{WORK}/data"
    initdb = [f"{BIN}/initdb", "-D", data, "-U", "owner", "-A", "scram-sha-256", "-L", SHARE, "--no-sync"]
    password = write("password", "owner-password", 0o600)
    assert as_nobody([*initdb, f"--pwfile={password}"], stdout=log("initdb.log"), stderr=subprocess.STDOUT).wait() == 0
    # The owner comes by the socket; all others have a password, so that a dropped role is refused.
    hba = "local all owner trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
    write("data/pg_hba.conf", hba, 0o600)
    options = ["-D", data, "-p", str(POSTGRES), "-k", WORK, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "jit=off"]
    server = as_nobody([f"{BIN}/postgres", *options], stdout=log("postgres.log"), stderr=subprocess.STDOUT)
    wait_for(lambda: os.path.exists(f"{WORK}/.s.PGSQL.{POSTGRES}") and listens(POSTGRES), "the start of PostgreSQL")
    time.sleep(0.5)
    subprocess.run([f"{BIN}/createdb", "-h", WORK, "-p", str(POSTGRES), "-U", "owner", "app"], check=True)
    psql("CREATE ROLE app_rights; CREATE TABLE t (n int); INSERT INTO t VALUES (1); GRANT SELECT, UPDATE ON t TO app_rights")
    return server


def start_keyward():
    write("role-id", "role", 0o600)
    databases = f"{WORK}/databases.ini"
    write(
        "keyward.toml",
        f"""
[server.vault]
kind = "vault"
address = "http://127.0.0.1:{VAULT}"
[session.app.approle]
role_id_file = "{WORK}/role-id"
[template.pool]
contents = '''
{{{{ with secret "database/creds/app" }}}}app = host=127.0.0.1 port={POSTGRES} dbname=app user={{{{ .Data.username }}}} password={{{{ .Data.password }}}}
{{{{ end }}}}'''
destination = "{databases}"
mode = "0600"
shell = true
command = "if test -s {WORK}/pool.pid; then kill -HUP $(cat {WORK}/pool.pid); fi"
""",
        0o600,
    )
    agent = as_nobody([KEYWARD, "run", "-c", f"{WORK}/keyward.toml"], stdout=log("keyward.log"), stderr=subprocess.STDOUT)
    wait_for(lambda: os.path.exists(databases), "the first rendering")
    return agent


def start_pool():
    # The clients' own password never changes: only the pool has the dynamic one.
    write("users.txt", '"web" "web-password"\n', 0o600)
    write(
        "pool.ini",
        f"""
[databases]
%include {WORK}/databases.ini
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {POOL}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {WORK}/users.txt
pool_mode = transaction
default_pool_size = 6
max_client_conn = 200
pidfile = {WORK}/pool.pid
""",
    )
    pool = as_nobody([f"{TOOLS}/usr/sbin/pgbouncer", f"{WORK}/pool.ini"], stdout=log("pool.log"), stderr=subprocess.STDOUT)
    wait_for(lambda: listens(POOL), "the start of pgbouncer")
    return pool


def pgbench(*options):
    script = write("load.sql", "BEGIN;\nSELECT n FROM t;\nSELECT pg_sleep(0.02);\nSELECT count(*) FROM t;\nCOMMIT;\n")
    command = [f"{BIN}/pgbench", "-n", "-f", script, "-T", str(SECONDS), "-h", "127.0.0.1", "-p", str(POOL), "-U", "web", *options, "app"]
    return subprocess.Popen(command, env={**os.environ, "PGPASSWORD": "web-password"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def main():
    running = []
    try:
        running.append(start_postgres())
        server = http.server.ThreadingHTTPServer(("127.0.0.1", VAULT), Vault)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Thread(target=ROLES.expire, daemon=True).start()
        running.append(start_keyward())
        running.append(start_pool())
        loads = {"connections that stay": pgbench("-c", "20"), "a connection for each transaction": pgbench("-c", "4", "-C")}
        failed = False
        for name, load in loads.items():
            try:
                output = load.communicate(timeout=SECONDS + 30)[0]
            except subprocess.TimeoutExpired:
                # pgbouncer keeps clients waiting while no login of its own succeeds.
                load.kill()
                output = load.communicate()[0] + "error: the clients wait for the pool"
            done = int((re.search(r"actually processed: (\d+)", output) or [0, 0])[1])
            errors = re.findall(r".*(?:error|aborted|FATAL).*", output)
            bad = re.search(r"number of failed transactions: (\d+)", output)
            number = int(bad[1]) if bad else -1
            print(f"databases: {name}: {done} transactions, {number} failed, {len(errors)} errors")
            failed |= load.returncode != 0 or number != 0 or bool(errors) or done == 0
            if errors:
                print("\n".join(errors[:5]))
        open_ones = sum(left for _, left in ROLES.dropped)
        print(f"databases: {len(ROLES.made)} roles made, {len(ROLES.dropped)} dropped, {open_ones} connections of a dropped role")
        failed |= len(ROLES.dropped) < 3 or open_ones > 0
        if failed:
            raise SystemExit(f"databases: FAILED; logs are in {WORK}")
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(30)
    shutil.rmtree(WORK)


main()
