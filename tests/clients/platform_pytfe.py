"""Calls of pytfe about workspaces, states, modules and tokens, against Terraform Enterprise or its emulator.

Where it is and who asks: TFE_ADDRESS and TFE_TOKEN. The organization `example` is there, and its SSH keys fill three pages.
Five of the calls for modules go to routes that were replaced on 2021-06-8: this client still sends them.
"""
import base64
import hashlib
import io
import json

from pytfe import TFEClient, TFEConfig, models
from pytfe.errors import NotFound, TFEError

ORGANIZATION = "example"


def refused(kind, call, *arguments, **named):
    try:
        answer = call(*arguments, **named)
    except kind as error:
        return str(error)
    raise AssertionError(f"not refused: {answer}")


def who(tfe):
    assert tfe.users.read_current().username
    assert ORGANIZATION in {organization.name for organization in tfe.organizations.list()}
    assert tfe.organizations.read(ORGANIZATION).name == ORGANIZATION
    assert tfe.organizations.read_entitlements(ORGANIZATION).state_storage
    refused(NotFound, tfe.organizations.read, "nobody")


def lists(tfe):
    keys = list(tfe.ssh_keys.list(ORGANIZATION))
    assert len(keys) == 250 and len({key.id for key in keys}) == 250, len(keys)
    made = tfe.ssh_keys.create(ORGANIZATION, models.SSHKeyCreateOptions(name="pytfe", value="PRIVATE"))
    assert tfe.ssh_keys.read(made.id).name == "pytfe"
    tfe.ssh_keys.delete(made.id)


def state():
    return json.dumps({
        "version": 4, "terraform_version": "1.11.4", "serial": 1, "lineage": "pytfe", "resources": [],
        "outputs": {"address": {"value": "192.0.2.1", "type": "string"}},
    }).encode()


def workspaces(tfe):
    made = tfe.workspaces.create(ORGANIZATION, models.WorkspaceCreateOptions(name="pytfe", description="by pytfe"))
    assert "pytfe" in {workspace.name for workspace in tfe.workspaces.list(ORGANIZATION)}
    assert tfe.workspaces.read("pytfe", organization=ORGANIZATION).id == made.id
    refused(TFEError, tfe.workspaces.create, ORGANIZATION, models.WorkspaceCreateOptions(name="pytfe"))
    assert tfe.workspaces.lock(made.id, models.WorkspaceLockOptions(reason="mine")).locked
    raw = state()
    options = models.StateVersionCreateOptions(
        serial=1, lineage="pytfe", md5=hashlib.md5(raw).hexdigest(), state=base64.b64encode(raw).decode()
    )
    version = tfe.state_versions.create(made.id, options)
    assert tfe.state_versions.read(version.id).serial == 1
    assert tfe.state_versions.read_current(made.id).id == version.id
    assert tfe.state_versions.download(version.id) == raw
    outputs = list(tfe.state_version_outputs.read_current(made.id))
    assert [(output.name, output.value) for output in outputs] == [("address", "192.0.2.1")], outputs
    assert not tfe.workspaces.unlock(made.id).locked
    tfe.workspaces.delete_by_id(made.id)
    refused(NotFound, tfe.workspaces.read_by_id, made.id)


def modules(tfe):
    registry = tfe.registry_modules
    module = registry.create(ORGANIZATION, models.RegistryModuleCreateOptions(name="net", provider="aws"))
    assert (module.namespace, module.registry_name.value) == (ORGANIZATION, "private")
    which = models.RegistryModuleID(
        organization=ORGANIZATION, name="net", provider="aws", namespace=ORGANIZATION, registry_name="private"
    )
    for version in ("1.0.0", "1.1.0"):
        made = registry.create_version(which, models.RegistryModuleCreateVersionOptions(version=version))
        registry.upload_tar_gzip(made.links["upload"], io.BytesIO(b"archive"))
    assert registry.read(which).status.value == "setup_complete"
    assert [status.version for status in registry.read(which).version_statuses] == ["1.0.0", "1.1.0"]
    assert registry.read_version(which, "1.1.0").status.value == "ok"
    assert registry.read_terraform_registry_module(which, "1.1.0").version == "1.1.0"
    registry.delete_version(which, "1.0.0")
    refused(NotFound, registry.read_version, which, "1.0.0")
    registry.delete_provider(which)
    refused(NotFound, registry.read, which)
    registry.create(ORGANIZATION, models.RegistryModuleCreateOptions(name="net", provider="aws"))
    registry.delete(ORGANIZATION, "net")
    refused(NotFound, registry.read, which)


def repositories(tfe):
    options = models.OAuthClientCreateOptions(
        name="pytfe", api_url="https://api.github.com", http_url="https://github.com", service_provider="github",
        oauth_token="secret",
    )
    client = tfe.oauth_clients.create(ORGANIZATION, options)
    token = client.oauth_tokens[0]["id"] if isinstance(client.oauth_tokens[0], dict) else client.oauth_tokens[0].id
    repository = models.RegistryModuleVCSRepoOptions(
        identifier="acme/terraform-aws-vpc", display_identifier="acme/terraform-aws-vpc", oauth_token_id=token
    )
    options = models.RegistryModuleCreateWithVCSConnectionOptions(vcs_repo=repository)
    module = tfe.registry_modules.create_with_vcs_connection(options)
    assert (module.name, module.provider, module.namespace) == ("vpc", "aws", ORGANIZATION)
    assert {listed.name for listed in tfe.registry_modules.list(ORGANIZATION)} == {"vpc"}
    tfe.registry_modules.delete(ORGANIZATION, "vpc")
    tfe.oauth_clients.delete(client.id)


def tokens(tfe):
    team = tfe.teams.create(ORGANIZATION, models.TeamCreateOptions(name="pytfe"))
    described = [models.TeamTokenCreateOptions(description=text) for text in ("one", "two")]
    one, two = (tfe.team_tokens.create_with_options(team.id, options) for options in described)
    first, second = tfe.team_tokens.create(team.id), tfe.team_tokens.create(team.id)
    listed = {token.id for token in tfe.team_tokens.list(ORGANIZATION)}
    assert {one.id, two.id, second.id} <= listed and first.id not in listed, listed
    assert all(token.token for token in (one, two, first, second)) and not tfe.team_tokens.read(team.id).token
    tfe.team_tokens.delete(team.id)
    tfe.team_tokens.delete_by_id(one.id)
    assert {token.id for token in tfe.team_tokens.list(ORGANIZATION)} == {two.id}
    tfe.teams.delete(team.id)
    assert tfe.organization_tokens.create(ORGANIZATION).token
    tfe.organization_tokens.delete(ORGANIZATION)


with TFEClient(TFEConfig(http2=False)) as tfe:
    for part in (who, lists, workspaces, modules, repositories, tokens):
        part(tfe)
