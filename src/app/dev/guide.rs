//! The texts of `keyward dev`: the configuration that its agent runs with, and what to try.

use super::{INSTANCE_RESOURCE, Places, WORKLOAD_RESOURCE, discovery};
use crate::emulators::cloud::{Cloud, CloudIdentities};

/// Terraform configuration of the trial. It needs no provider, and so no network.
pub(super) const TERRAFORM: &str = r#"terraform {
  cloud {
    hostname     = "platform.example.test"
    organization = "example"
    workspaces {
      name = "trial"
    }
  }
}

resource "terraform_data" "greeting" {
  input = "hello"
}

output "greeting" {
  value = terraform_data.greeting.output
}
"#;

pub(super) fn config_file(places: &Places, cloud: &Cloud) -> String {
    let Places { dir, socket, local_key, .. } = places;
    let dir = dir.display();
    format!(
        r#"# Written at each start of `keyward dev`: everything here is emulated, or a trial on this machine alone.

# The access-control service. It trusts the emulated cloud's signatures.
[acl]
listen = "{access}"
data_dir = "{dir}/access"

[acl.method.cloud]
issuer = "{issuer}"
discovery_url = "{discovery}"
ca_file = "{ca}"
audience = "{INSTANCE_RESOURCE}"

[acl.method.cloud.role.machine]
principals = ["{principal}"]
subscriptions = ["{subscription}"]
resource_groups = ["{group}"]
policies = ["machine"]
ttl = "2m"

[server.access]
kind = "keyward"
address = "{access_url}"

# The emulated Vault.
[server.secrets]
kind = "vault"
address = "{secrets}"

# The instance's own identity, into the access-control service. Its tokens cannot be renewed: watch the logins.
[session.instance]
server = "access"
mount = "cloud"
check_interval = "30s"

[session.instance.cloud]
role = "machine"
resource = "{INSTANCE_RESOURCE}"

# Workload identity from the environment, into the emulated Vault. Watch the renewals.
[session.workload]
server = "secrets"
mount = "azure"
check_interval = "30s"

[session.workload.cloud]
role = "workload"
resource = "{WORKLOAD_RESOURCE}"
authenticate_from_environment = true

[sink.instance]
session = "instance"
path = "{dir}/instance.token"
mode = "0600"
on_expiry = "remove"

[sink.workload]
session = "workload"
path = "{dir}/workload.json"
format = "json"
mode = "0600"

# A file that is rendered of a secret: change the secret, and see the file change within the interval.
[templates]
interval = "10s"

[template.greeting]
session = "workload"
contents = """
{{{{ with secret "secret/data/example" -}}}}
greeting = {{{{ .Data.data.greeting | toJSON }}}}
{{{{ end -}}}}
"""
destination = "{dir}/greeting.conf"
mode = "0600"

[listener.local]
address = "unix://{socket}"
mode = "0600"

[listener.loopback]
address = "tcp://{local_api}"
key_file = "{local_key}"

[listener.health]
kind = "health"
address = "tcp://{health}"

# The secrets server's own API, with the workload's token on it.
[listener.vault]
kind = "api_proxy"
address = "unix://{vault}"
mode = "0600"
session = "workload"

# The gateway in front of the emulated provisioning platform, and the file by which Terraform finds it.
[gateway]
upstream = "{platform}"
listen = "tcp://{gateway}"
token_file = "{platform_token}"
host = "platform.example.test"

[gateway.terraform_config_file]
path = "{terraform}"

[agent]
state_dir = "{dir}/state"
"#,
        access = places.access.replace("http://", "tcp://"),
        access_url = places.access,
        issuer = cloud.issuer(),
        discovery = discovery(cloud),
        ca = cloud.ca_file().display(),
        principal = cloud.identities().system.object_id,
        subscription = cloud.identities().subscription,
        group = CloudIdentities::RESOURCE_GROUP,
        secrets = places.secrets,
        socket = socket.display(),
        vault = places.vault.display(),
        local_key = local_key.display(),
        local_api = places.local_api,
        health = places.health,
        platform = places.platform,
        gateway = places.gateway,
        platform_token = places.platform_token.display(),
        terraform = places.terraform.display(),
    )
}

pub(super) fn text(places: &Places) -> String {
    let program = std::env::current_exe().map_or_else(|_| "keyward".to_owned(), |path| path.display().to_string());
    let Places { dir, config, metadata, authority, access, secrets, local_api, health, .. } = places;
    let (dir, config, socket) = (dir.display(), config.display(), places.socket.display());
    let (faults_key, local_key) = (places.faults_key.display(), places.local_key.display());
    let (cloud_faults, secrets_faults) = (&places.cloud_faults, &places.secrets_faults);
    let Places { platform, platform_faults, gateway, .. } = places;
    let (platform_token, gateway_token) = (places.platform_token.display(), places.gateway_token.display());
    let (terraform, vault) = (places.terraform.display(), places.vault.display());
    format!(
        r#"keyward dev: all on loopback; keys, secrets and state are in {dir}

  emulated cloud           {metadata}  {authority}
  access-control service   {access}
  emulated Vault  {secrets}
  emulated platform        {platform}
  gateway                  http://{gateway}
  agent                    {socket}  http://{local_api}  health http://{health}

Try, in another shell:

  # The token that the machine's identity was turned into, from the local API; the same from the sink
  curl -s --unix-socket {socket} -H 'X-Vault-Request: true' 'http://localhost/agent/v1/token?session=instance'; echo
  cat {dir}/instance.token; echo

  # Use it: ask the access-control service who it is; read a secret with the other session's token
  curl -s -H "X-Service-Token: $(cat {dir}/instance.token)" {access}/v1/acl/token/self
  curl -s -H "X-Vault-Token: $({program} token --config {config} --session workload)" {secrets}/v1/secret/data/example

  # The same without a token: clients of the secrets server work on this socket, and the agent puts the token on
  curl -s --unix-socket {vault} -H 'X-Vault-Request: true' http://localhost/v1/secret/data/example

  # A file that a template made of that secret; it follows the secret within ten seconds
  cat {dir}/greeting.conf

  # The local API on loopback TCP, where the caller brings a key
  curl -s -H 'X-Vault-Request: true' -H "X-Vault-Token: $(cat {local_key})" 'http://{local_api}/agent/v1/token?session=workload'

  # What the agent is doing, and whether all is well
  {program} status --config {config}
  curl -s http://{health}/readyz

  # Call the provisioning platform through the gateway, which brings the platform's token; then change that token
  curl -s -H "Authorization: Bearer $(cat {gateway_token})" http://{gateway}/api/v2/organizations/example/workspaces
  curl -s -X POST -H "X-Dials-Key: $(cat {faults_key})" '{platform_faults}/rotate' > {platform_token}
  {program} gateway tokens --config {config}

  # With Terraform: change the token in the midst of an apply, and it goes well
  cd {dir}/terraform; export TF_CLI_CONFIG_FILE={terraform}; terraform init; terraform apply

  # Make the cloud and the secrets server fail; watch the agent serve on, and come back by itself
  curl -s -X POST -H "X-Dials-Key: $(cat {faults_key})" '{cloud_faults}/refuse?on=true'
  curl -s -X POST -H "X-Dials-Key: $(cat {faults_key})" '{secrets_faults}/away?on=true'
  curl -s -X POST -H "X-Dials-Key: $(cat {faults_key})" '{secrets_faults}/away?on=false'
  curl -s -X POST -H "X-Dials-Key: $(cat {faults_key})" '{cloud_faults}/refuse?on=false'

Ctrl-C stops it.
"#,
    )
}
