"""Calls of hvac about secrets, tokens and leases, against Vault, its emulator or the API proxy.

Where it is: VAULT_ADDR, `http://HOST:PORT` or `unix:///PATH`. Who asks: VAULT_TOKEN, which may be empty where something in
between puts a token on. With IN_BETWEEN=1 that is so: nothing may tell whose token it is, and what is done with the token
itself is left out. The server has key-value stores at `secret/` and `kv/`, the role `dev` at `database/` and the role `web`
at `pki/`. Arguments name parts to run; without any all are run.
"""
import os
import socket
import sys
import uuid

import hvac
import requests
import urllib3
from hvac.exceptions import Forbidden, InvalidPath, InvalidRequest

IN_BETWEEN = os.environ.get("IN_BETWEEN") == "1"


class Connection(urllib3.connection.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def _new_conn(self):
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.connect(self.path)
        return made


class Pool(urllib3.connectionpool.HTTPConnectionPool):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def _new_conn(self):
        return Connection(self.path)


class Socket(requests.adapters.HTTPAdapter):
    """Every request goes to one unix socket."""

    def __init__(self, path):
        super().__init__()
        self.pool = Pool(path)

    def get_connection_with_tls_context(self, request, verify, proxies=None, cert=None):
        return self.pool


def client(token=None):
    address = os.environ["VAULT_ADDR"]
    session = requests.Session()
    session.trust_env = False
    if address.startswith("unix://"):
        session.mount("http://", Socket(address.removeprefix("unix://")))
        address = "http://localhost"
    token = os.environ.get("VAULT_TOKEN", "") if token is None else token
    return hvac.Client(url=address, token=token, session=session)


def refused(kind, words, call, *arguments, **named):
    try:
        answer = call(*arguments, **named)
    except kind as error:
        assert words in str(error), f"{words!r} is not in {error}"
    else:
        raise AssertionError(f"not refused: {answer}")


def server(vault):
    assert vault.sys.is_initialized() and not vault.sys.is_sealed()
    assert vault.sys.read_health_status(method="GET")["sealed"] is False
    mounts = vault.sys.list_mounted_secrets_engines()["data"]
    assert mounts["secret/"]["options"] == {"version": "2"} and mounts["kv/"]["options"] == {"version": "1"}


def anything(vault, folder):
    """The calls that know no engine."""
    assert vault.read(f"kv/{folder}/a") is None
    vault.write_data(f"kv/{folder}/a", data={"one": "1", "ü": "ß"})
    vault.write_data(f"kv/{folder}/b c/d", data={"two": "2"})
    assert vault.read(f"kv/{folder}/a")["data"] == {"one": "1", "ü": "ß"}
    assert vault.list(f"kv/{folder}")["data"]["keys"] == ["a", "b c/"]
    assert vault.read(f"kv/{folder}/b c/d")["data"] == {"two": "2"}
    for name in ("a", "b c/d"):
        vault.delete(f"kv/{folder}/{name}")
    assert vault.list(f"kv/{folder}") is None


def plain(vault, folder):
    kv = vault.secrets.kv.v1
    named = {"path": f"{folder}/plain", "mount_point": "kv"}
    refused(InvalidPath, "", kv.read_secret, **named)
    kv.create_or_update_secret(secret={"a": "1"}, **named)
    kv.create_or_update_secret(secret={"b": "2"}, **named)
    assert kv.read_secret(**named)["data"] == {"b": "2"}
    assert kv.list_secrets(folder, mount_point="kv")["data"]["keys"] == ["plain"]
    kv.delete_secret(**named)
    refused(InvalidPath, "", kv.read_secret, **named)


def versioned(vault, folder):
    kv = vault.secrets.kv.v2
    path = f"{folder}/versioned"

    def read(version=None):
        return kv.read_secret_version(path, version=version, raise_on_deleted_version=True)["data"]

    refused(InvalidPath, "", read)
    assert kv.create_or_update_secret(path, {"a": "1"}, cas=0)["data"]["version"] == 1
    refused(InvalidRequest, "check-and-set", kv.create_or_update_secret, path, {"a": "2"}, cas=0)
    assert kv.create_or_update_secret(path, {"a": "2", "b": "x" * 100_000}, cas=1)["data"]["version"] == 2
    assert read()["data"]["a"] == "2" and len(read()["data"]["b"]) == 100_000
    assert read(1)["data"] == {"a": "1"} and read(1)["metadata"]["version"] == 1
    assert kv.patch(path, {"b": "y"})["data"]["version"] == 3
    assert read()["data"] == {"a": "2", "b": "y"}
    assert kv.list_secrets(folder)["data"]["keys"] == ["versioned"]
    kv.delete_latest_version_of_secret(path)
    refused(InvalidPath, "", read)
    kv.delete_secret_versions(path, [1])
    refused(InvalidPath, "", read, 1)
    kv.undelete_secret_versions(path, [1, 3])
    assert read()["metadata"]["version"] == 3 and read(1)["data"] == {"a": "1"}
    kv.destroy_secret_versions(path, [1])
    refused(InvalidPath, "", read, 1)
    kv.undelete_secret_versions(path, [1])
    refused(InvalidPath, "", read, 1)
    kv.update_metadata(path, max_versions=2, cas_required=True, custom_metadata={"owner": "web"})
    refused(InvalidRequest, "check-and-set", kv.create_or_update_secret, path, {"a": "4"})
    kv.create_or_update_secret(path, {"a": "4"}, cas=3)
    known = kv.read_secret_metadata(path)["data"]
    assert sorted(known["versions"]) == ["3", "4"] and known["oldest_version"] == 3, known
    assert known["custom_metadata"] == {"owner": "web"} and known["current_version"] == 4
    kv.delete_metadata_and_all_versions(path)
    refused(InvalidPath, "", kv.read_secret_metadata, path)
    assert kv.read_configuration()["data"]["max_versions"] == 0


def leases(vault, folder):
    given = [vault.secrets.database.generate_credentials("dev") for _ in range(2)]
    first, second = (it["lease_id"] for it in given)
    assert first.startswith("database/creds/dev/") and given[0]["renewable"] and given[0]["lease_duration"] > 0
    assert given[0]["data"]["username"] and given[0]["data"]["password"]
    known = vault.sys.read_lease(first)["data"]
    assert known["id"] == first and known["last_renewal"] is None
    renewed = vault.sys.renew_lease(first, increment=30)
    assert (renewed["lease_id"], renewed["lease_duration"]) == (first, 30)
    assert vault.sys.read_lease(first)["data"]["last_renewal"]
    assert set(vault.sys.list_leases("database/creds/dev")["data"]["keys"]) >= {it.rsplit("/", 1)[1] for it in (first, second)}
    vault.sys.revoke_lease(first)
    refused(InvalidRequest, "invalid lease", vault.sys.read_lease, first)
    refused(InvalidRequest, "lease not found", vault.sys.renew_lease, first)
    vault.sys.revoke_prefix(second)
    refused(InvalidRequest, "invalid lease", vault.sys.read_lease, second)


def certificates(vault, folder):
    made = vault.secrets.pki.generate_certificate("web", "web.example", {"ttl": "1h", "ip_sans": "127.0.0.1"})["data"]
    assert "BEGIN CERTIFICATE" in made["certificate"] and "PRIVATE KEY" in made["private_key"]
    assert made["issuing_ca"] in made["ca_chain"] and made["serial_number"].count(":") == 19


def wrapping(vault, folder):
    """By a token of its own, which opens one thing."""
    wrapped = vault.sys.wrap({"a": "1"}, ttl=60)["wrap_info"]
    assert wrapped["ttl"] == 60
    assert client(token=wrapped["token"]).sys.unwrap()["data"] == {"a": "1"}
    refused(InvalidRequest, "wrapping token", vault.sys.unwrap, wrapped["token"])


def me(vault, folder):
    """What is said of the caller's own token."""
    assert vault.is_authenticated()
    told = vault.auth.token.lookup_self()["data"]
    assert told["ttl"] >= 0 and told["policies"]
    if IN_BETWEEN:
        assert not told.get("id") and not told.get("accessor"), "whose token it is, is told"
    else:
        assert told["id"] == vault.token and told["accessor"]


def tokens(vault, folder):
    mine = vault.auth.token
    auth = mine.create(policies=["dev"], ttl="10m", meta={"for": "hvac"}, display_name="child")["auth"]
    child, accessor = auth["client_token"], auth["accessor"]
    assert auth["lease_duration"] == 600 and auth["renewable"] and not auth["orphan"]
    assert mine.lookup(child)["data"]["meta"] == {"for": "hvac"}
    told = mine.lookup_accessor(accessor)["data"]
    assert not told["id"] and told["display_name"] == "token-child"
    assert accessor in mine.list_accessors()["data"]["keys"]
    assert mine.renew(child, increment="5m")["auth"]["lease_duration"] == 300
    assert mine.renew_accessor(accessor, increment="7m")["auth"]["lease_duration"] == 420
    theirs = client(token=child)
    limited = client(token=mine.create(policies=["dev"], num_uses=20)["auth"]["client_token"]).auth.token
    assert limited.lookup_self()["data"]["num_uses"] == 19
    refused(InvalidRequest, "restricted use token cannot generate child tokens", limited.create)
    limited.revoke_self()
    assert theirs.auth.token.renew_self(increment="1m")["auth"]["client_token"] == child
    refused(InvalidRequest, "subset", theirs.auth.token.create, policies=["other"])
    grandchild = theirs.auth.token.create()["auth"]["client_token"]
    orphan = mine.create_orphan()["auth"]
    assert orphan["orphan"]
    mine.revoke_accessor(accessor)
    for gone in (child, grandchild):
        refused(Forbidden, "permission denied", client(token=gone).auth.token.lookup_self)
    refused(Forbidden, "bad token", mine.lookup, child)
    refused(Forbidden, "invalid accessor", mine.lookup_accessor, accessor)
    client(token=orphan["client_token"]).auth.token.revoke_self()
    refused(Forbidden, "bad token", mine.lookup, orphan["client_token"])
    last = mine.create()["auth"]["client_token"]
    hanging = client(token=last).auth.token.create()["auth"]["client_token"]
    mine.revoke_and_orphan_children(last)
    assert mine.lookup(hanging)["data"]["orphan"]
    mine.revoke(hanging)
    refused(InvalidRequest, "token not found", mine.revoke, hanging)
    wrapped = mine.create(ttl="1m", wrap_ttl="2m")["wrap_info"]
    opened = vault.sys.unwrap(wrapped["token"])["auth"]
    mine.revoke(opened["client_token"])


PARTS = {
    "anything": anything, "plain": plain, "versioned": versioned, "leases": leases, "certificates": certificates,
    "me": me, "wrapping": wrapping, "tokens": tokens,
}

if __name__ == "__main__":
    vault = client()
    if not IN_BETWEEN:
        server(vault)
    # A separate folder: other tests may do the same at the same time.
    folder = f"hvac-{uuid.uuid4()}"
    own = {"wrapping", "tokens"} if IN_BETWEEN else set()
    for name in sys.argv[1:] or [name for name in PARTS if name not in own]:
        PARTS[name](vault, folder)
