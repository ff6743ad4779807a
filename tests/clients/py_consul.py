"""Every call of access control that py-consul has, against a server that has no first token yet.

Where the server is: CONSUL_HTTP_ADDR. For logins: BEARER, a token that is signed with the key whose public half is
PUBLIC_KEY (PEM); its claims are iss "https://issuer.example", aud ["machines"], name "web", team "Shop".
"""
import os
import uuid

from consul import Consul
from consul.exceptions import ACLPermissionDenied, BadRequest, ClientError

BUILT_IN = "00000000-0000-0000-0000-000000000001"


def refused(kind, words, call, *arguments, **named):
    try:
        answer = call(*arguments, **named)
    except kind as error:
        assert words in str(error), f"{words!r} is not in {error}"
    else:
        raise AssertionError(f"not refused: {answer}")


def ids(entries, key="ID"):
    return {entry[key] for entry in entries}


def names(links):
    return {link["Name"] for link in links}


def bootstrap():
    secret = str(uuid.uuid4())
    nobody = Consul().acl
    first = nobody.bootstrap(bootstrap_secret=secret)
    assert first["SecretID"] == first["ID"] == secret
    assert first["Policies"] == [{"ID": BUILT_IN, "Name": "global-management"}]
    refused(ACLPermissionDenied, "ACL bootstrap no longer allowed (reset index:", nobody.bootstrap)
    refused(ACLPermissionDenied, "anonymous token lacks permission 'acl:read'", nobody.tokens.list)
    refused(ACLPermissionDenied, "ACL not found", nobody.tokens.list, token=str(uuid.uuid4()))
    return Consul(token=secret).acl


def policies(acl):
    made = acl.policy.create("web", rules={"key_prefix": {"web/": {"policy": "read"}}}, description="reads")
    assert made["Name"] == "web" and "key_prefix" in made["Rules"] and made["Hash"]
    assert acl.policy.read(made["ID"]) == made
    listed = {policy["Name"]: policy for policy in acl.policy.list()}
    assert {"web", "global-management"} <= listed.keys() and not listed["web"].get("Rules")
    changed = acl.policy.update(made["ID"], "web-read", rules={"acl": "read"})
    assert (changed["ID"], changed["Name"], changed["Description"]) == (made["ID"], "web-read", "")
    assert changed["ModifyIndex"] > made["ModifyIndex"] == made["CreateIndex"] and changed["Hash"] != made["Hash"]
    refused(ClientError, "already exists", acl.policy.create, "web-read")
    refused(BadRequest, "Failed to parse ACL rules", acl.policy.update, made["ID"], "web-read", rules="acl = {")
    refused(BadRequest, "", acl.policy.create, "no spaces")
    refused(ACLPermissionDenied, "", acl.policy.delete, BUILT_IN)
    gone = acl.policy.create("short-lived")
    assert acl.policy.delete(gone["ID"]) is True
    assert acl.policy.read(gone["ID"]) is None
    return changed


def templated_policies(acl):
    listed = acl.templated_policy.list()
    service = listed["builtin/service"]
    assert service["TemplateName"] == "builtin/service" and "name" in service["Schema"]
    assert acl.templated_policy.read("builtin/service") == service
    assert acl.templated_policy.read("builtin/none") is None
    shown = acl.templated_policy.preview("builtin/service", {"name": "api"})
    assert 'service "api"' in shown["Rules"] and shown["Name"].startswith("synthetic-policy-")
    refused(BadRequest, "", acl.templated_policy.preview, "builtin/service")


def roles(acl, policy):
    links = {
        "policies_id": [policy["ID"]],
        "policies_name": ["global-management"],
        "service_identities": [{"ServiceName": "web", "Datacenters": ["dc1"]}],
        "node_identities": [{"NodeName": "node-1", "Datacenter": "dc1"}],
        "templated_policies": [{"builtin/service": {"name": "api"}}],
    }
    role = acl.role.create("operators", description="they operate", **links)
    assert names(role["Policies"]) == {"web-read", "global-management"}
    assert role["ServiceIdentities"] == links["service_identities"]
    assert role["NodeIdentities"] == links["node_identities"]
    template = role["TemplatedPolicies"][0]
    assert (template["TemplateName"], template["TemplateVariables"]) == ("builtin/service", {"name": "api"})
    assert acl.role.read(role["ID"]) == acl.role.read_by_name("operators") == role
    assert ids(acl.role.list(policy=policy["ID"])) == {role["ID"]}
    assert role["ID"] in ids(acl.role.list())
    refused(ClientError, "already exists", acl.role.create, "operators")
    refused(BadRequest, 'No such ACL policy with name "none"', acl.role.create, "other", policies_name=["none"])
    refused(BadRequest, "Only alphanumeric characters", acl.role.create, "no spaces")
    changed = acl.role.update(role["ID"], "readers", policies_id=[policy["ID"]])
    assert changed["Description"] == "" and "ServiceIdentities" not in changed
    assert acl.role.read_by_name("operators") is None
    gone = acl.role.create("short-lived")
    assert acl.role.delete(gone["ID"]) is True
    assert acl.role.read(gone["ID"]) is None
    return changed


def tokens(acl, policy, role):
    accessor, secret = str(uuid.uuid4()), str(uuid.uuid4())
    token = acl.token.create(
        accessor_id=accessor,
        secret_id=secret,
        description="of web",
        policies_id=[policy["ID"]],
        policies_name=["web-read"],
        roles_id=[role["ID"]],
        roles_name=["readers"],
        service_identities=[{"ServiceName": "web"}],
        node_identities=["node-1:dc1"],
        templated_policies=[{"builtin/node": {"name": "node-2"}}],
        expiration_ttl="10m",
    )
    assert (token["AccessorID"], token["SecretID"]) == (accessor, secret)
    assert token["Policies"] == [{"ID": policy["ID"], "Name": "web-read"}]
    assert token["Roles"] == [{"ID": role["ID"], "Name": "readers"}]
    assert token["NodeIdentities"] == [{"NodeName": "node-1", "Datacenter": "dc1"}]
    assert token["Local"] is False and "ExpirationTime" in token and "ExpirationTTL" not in token
    assert acl.token.read(accessor) == acl.token.read_self(token=secret) == token

    # A token with acl:read sees all but the secrets.
    seen = acl.token.read(accessor, token=secret)
    assert seen == token | {"SecretID": "<hidden>"}
    assert ids(acl.tokens.list(token=secret), "SecretID") == {"<hidden>"}
    refused(ACLPermissionDenied, "lacks permission 'acl:write'", acl.token.create, token=secret)

    assert ids(acl.tokens.list(policy=policy["ID"]), "AccessorID") == {accessor}
    assert ids(acl.tokens.list(role=role["ID"]), "AccessorID") == {accessor}
    assert ids(acl.tokens.list(servicename="web"), "AccessorID") == {accessor}
    assert acl.tokens.list(authmethod="none") == []
    refused(BadRequest, "can only filter by one of", acl.tokens.list, policy=policy["ID"], role=role["ID"])

    cloned = acl.token.clone(accessor, description="of web, again")
    assert cloned["AccessorID"] != accessor and cloned["SecretID"] != secret
    kept = ("Policies", "Roles", "ServiceIdentities", "NodeIdentities", "TemplatedPolicies", "Local", "ExpirationTime")
    assert all(cloned[field] == token[field] for field in kept) and cloned["Description"] == "of web, again"

    # Fields that the server sets are sent back unchanged; fields that are omitted are cleared.
    changed = acl.token.update(accessor, secret_id=secret, expiration_time=token["ExpirationTime"], roles_name=["readers"])
    assert "Policies" not in changed and changed["Description"] == "" and changed["CreateTime"] == token["CreateTime"]
    refused(BadRequest, "", acl.token.update, accessor, secret_id=str(uuid.uuid4()))
    refused(BadRequest, "Cannot toggle local mode", acl.token.update, accessor, local=True)
    refused(BadRequest, "Cannot change expiration time", acl.token.update, accessor, expiration_ttl="1h")
    refused(ClientError, "already in use", acl.token.create, accessor_id=accessor)
    refused(BadRequest, "cannot be less than", acl.token.create, expiration_ttl="1s")
    refused(BadRequest, "reserved", acl.token.create, secret_id="00000000-0000-0000-0000-00000000005b")

    local = acl.token.create(local=True)
    assert local["Local"] is True and acl.token.update(local["AccessorID"], local=True)["Local"] is True
    refused(BadRequest, "Cannot toggle local mode", acl.token.update, local["AccessorID"])

    assert acl.token.delete(cloned["AccessorID"]) is True
    assert acl.token.read(cloned["AccessorID"]) is None
    assert acl.token.read_self(token=cloned["SecretID"]) is None
    refused(ACLPermissionDenied, "ACL not found", acl.tokens.list, token=cloned["SecretID"])
    missing = str(uuid.uuid4())
    assert acl.token.read(missing) is None and acl.token.clone(missing) is None
    # The answer is 200 and `false`; py-consul takes every 200 for yes.
    assert acl.token.delete(missing) is True
    own = acl.token.read_self()["AccessorID"]
    refused(BadRequest, "Deletion of the request's authorization token is not permitted", acl.token.delete, own)

    # A deleted role grants nothing.
    assert acl.token.read(accessor, token=secret)["AccessorID"] == accessor
    assert acl.role.delete(role["ID"]) is True
    assert "Roles" not in acl.token.read(accessor)
    refused(ACLPermissionDenied, "lacks permission 'acl:read'", acl.tokens.list, token=secret)


def auth_methods(acl):
    config = {
        "JWTValidationPubKeys": [os.environ["PUBLIC_KEY"]],
        "JWTSupportedAlgs": ["RS256"],
        "BoundIssuer": "https://issuer.example",
        "BoundAudiences": ["machines"],
        "ClaimMappings": {"name": "name", "team": "team"},
    }
    method = acl.auth_method.create(
        "machines", "jwt", description="by key", display_name="Machines", config=config, max_token_ttl="10m"
    )
    assert (method["Name"], method["Type"], method["DisplayName"]) == ("machines", "jwt", "Machines")
    assert method["Config"]["BoundAudiences"] == ["machines"] and method["MaxTokenTTL"] == "10m0s"
    assert acl.auth_method.read("machines") == method
    [listed] = [entry for entry in acl.auth_method.list() if entry["Name"] == "machines"]
    assert listed["Type"] == "jwt" and "Config" not in listed
    refused(BadRequest, "", acl.auth_method.update, "machines", "kubernetes", config=config)
    refused(BadRequest, "", acl.auth_method.create, "other", "jwt", config={})
    changed = acl.auth_method.update("machines", "jwt", config=config, token_locality="global", max_token_ttl="5m")
    assert changed["TokenLocality"] == "global" and "Description" not in changed | {} or changed["Description"] == ""

    bearer = os.environ["BEARER"]
    refused(ACLPermissionDenied, "Permission denied", acl.login, "machines", bearer)
    rule = acl.binding_rule.create("machines", "service", "${value.name}", description="their own", selector='value.team == "Shop"')
    assert acl.binding_rule.read(rule["ID"]) == rule
    assert ids(acl.binding_rule.list()) == ids(acl.binding_rule.list(auth_method="machines")) == {rule["ID"]}
    assert acl.binding_rule.list(auth_method="none") == []
    other = acl.binding_rule.create("machines", "templated-policy", "builtin/node", bind_vars={"Name": "${value.name}"})
    assert other["BindVars"] == {"Name": "${value.name}"}
    refused(BadRequest, "", acl.binding_rule.create, "none", "service", "web")
    rule = acl.binding_rule.update(rule["ID"], "machines", "service", "team-${value.team}")
    assert rule["BindName"] == "team-${value.team}" and rule.get("Selector", "") == ""

    nobody = Consul().acl
    token = nobody.login("machines", bearer, meta={"pod": "web-1"})
    assert token["AuthMethod"] == "machines" and token["Local"] is False and "ExpirationTime" in token
    assert token["Description"] == 'token created via login: {"pod":"web-1"}'
    assert token["ServiceIdentities"] == [{"ServiceName": "team-shop"}]
    assert token["TemplatedPolicies"][0]["TemplateName"] == "builtin/node"
    assert ids(acl.tokens.list(authmethod="machines"), "AccessorID") == {token["AccessorID"]}
    refused(ACLPermissionDenied, "", nobody.login, "machines", bearer[:-8] + "AAAAAAAA")
    refused(ACLPermissionDenied, "ACL not found", nobody.login, "none", bearer)
    assert nobody.logout(token["SecretID"]) is True
    assert acl.token.read(token["AccessorID"]) is None
    refused(ACLPermissionDenied, "", nobody.logout, token["SecretID"])
    refused(ACLPermissionDenied, "token wasn't created via login", acl.logout, acl.agent.token)

    assert acl.binding_rule.delete(other["ID"]) is True and acl.binding_rule.read(other["ID"]) is None
    left = nobody.login("machines", bearer)
    assert acl.auth_method.delete("machines") is True
    assert acl.auth_method.read("machines") is None and acl.binding_rule.list() == []
    refused(ACLPermissionDenied, "ACL not found", acl.tokens.list, token=left["SecretID"])


acl = bootstrap()
policy = policies(acl)
templated_policies(acl)
role = roles(acl, policy)
tokens(acl, policy, role)
auth_methods(acl)
print("py-consul: done")
