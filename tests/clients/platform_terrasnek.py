"""Calls of terrasnek about workspaces, states, modules and tokens, against Terraform Enterprise or its emulator.

Where it is and who asks: TFE_ADDRESS and TFE_TOKEN. Whether calls with other tokens are `taken` or `refused`: OTHERS. The
organization `example` is there, and its SSH keys fill three pages.
"""
import base64
import hashlib
import json
import os
import tempfile

import requests
from terrasnek.api import TFC
from terrasnek.exceptions import TFCException, TFCHTTPNotFound, TFCHTTPUnauthorized

ORGANIZATION = "example"
ADDRESS = os.environ["TFE_ADDRESS"]


def refused(kind, call, *arguments, **named):
    try:
        answer = call(*arguments, **named)
    except kind:
        return
    raise AssertionError(f"not refused: {answer}")


def data(kind, **attributes):
    return {"data": {"type": kind, "attributes": {name.replace("_", "-"): value for name, value in attributes.items()}}}


def who(tfc):
    assert tfc.account.show()["data"]["attributes"]["username"]
    assert ORGANIZATION in {one["id"] for one in tfc.orgs.list()["data"]}
    assert tfc.orgs.entitlements(ORGANIZATION)["data"]["attributes"]["state-storage"]
    # It looks for the paths of the platform before it has a token to show.
    stranger = TFC("nobody's", url=ADDRESS, skip_version_check=True)
    refused(TFCHTTPUnauthorized, stranger.orgs.list)


def lists(tfc):
    # It has no paging for this list, and gets all of it.
    assert len(tfc.ssh_keys.list()["data"]) == 250
    made = tfc.ssh_keys.create(data("ssh-keys", name="terrasnek", value="PRIVATE"))["data"]["id"]
    assert tfc.ssh_keys.show(made)["data"]["attributes"]["name"] == "terrasnek"
    tfc.ssh_keys.destroy(made)
    refused(TFCHTTPNotFound, tfc.ssh_keys.show, made)


def workspaces(tfc):
    made = tfc.workspaces.create(data("workspaces", name="terrasnek"))["data"]["id"]
    assert tfc.workspaces.show(workspace_name="terrasnek")["data"]["id"] == made
    assert made in {one["id"] for one in tfc.workspaces.list_all()["data"]}
    refused(TFCException, tfc.workspaces.create, data("workspaces", name="terrasnek"))
    tfc.workspaces.lock(made, {"reason": "mine"})
    raw = json.dumps({"version": 4, "serial": 1, "lineage": "x", "resources": [], "outputs": {}}).encode()
    state = data("state-versions", serial=1, md5=hashlib.md5(raw).hexdigest(), state=base64.b64encode(raw).decode())
    version = tfc.state_versions.create(made, state)["data"]["id"]
    assert tfc.state_versions.get_current(made)["data"]["id"] == version
    url = tfc.state_versions.show(version)["data"]["attributes"]["hosted-state-download-url"]
    bearer = {"Authorization": "Bearer " + os.environ["TFE_TOKEN"]}
    assert requests.get(url, headers=bearer, timeout=10).content == raw
    tfc.workspaces.unlock(made)
    tfc.workspaces.destroy(workspace_id=made)
    refused(TFCHTTPNotFound, tfc.workspaces.show, workspace_id=made)


def modules(tfc):
    registry = tfc.registry_modules
    registry.create(data("registry-modules", name="dns", provider="aws", registry_name="private"))
    with tempfile.TemporaryDirectory() as folder:
        archive, copy = os.path.join(folder, "archive"), os.path.join(folder, "copy")
        with open(archive, "wb") as file:
            file.write(b"archive")
        for version in ("1.0.0", "1.1.0"):
            made = registry.create_version("dns", "aws", data("registry-module-versions", version=version))
            registry.upload_version(archive, made["data"]["links"]["upload"])
        registry.download_version_source("dns", "aws", "1.1.0", copy)
        with open(copy, "rb") as file:
            assert file.read() == b"archive"
    versions = registry.list_versions("dns", "aws")["modules"][0]["versions"]
    assert versions == [{"version": "1.0.0"}, {"version": "1.1.0"}], versions
    assert registry.list_latest_version_specific_provider("dns", "aws")["version"] == "1.1.0"
    assert registry.search("dns")["modules"][0]["name"] == "dns"
    assert registry.show("dns", "aws")["data"]["attributes"]["status"] == "setup_complete"
    assert "dns" in {one["attributes"]["name"] for one in registry.list_all()["data"]}
    # It leaves an empty segment in these paths.
    registry.destroy("dns", provider="aws", version="1.0.0")
    registry.destroy("dns", provider="aws")
    refused(TFCHTTPNotFound, registry.show, "dns", "aws")


def tokens(tfc):
    team = tfc.teams.create(data("teams", name="terrasnek"))["data"]["id"]
    first = tfc.team_tokens.create(team)["data"]["attributes"]["token"]
    second = tfc.team_tokens.create(team)["data"]["attributes"]["token"]
    refused(TFCHTTPUnauthorized, TFC(first, url=ADDRESS, skip_version_check=True).orgs.list)
    list_orgs = TFC(second, url=ADDRESS, skip_version_check=True).orgs.list
    if os.environ["OTHERS"] == "taken":
        list_orgs()
    else:
        refused(TFCHTTPUnauthorized, list_orgs)
    tfc.team_tokens.destroy(team)
    tfc.teams.destroy(team)


tfc = TFC(os.environ["TFE_TOKEN"], url=ADDRESS, skip_version_check=True)
tfc.set_org(ORGANIZATION)
for part in (who, lists, workspaces, modules, tokens):
    part(tfc)
