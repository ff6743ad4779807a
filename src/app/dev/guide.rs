//! Files and output of `keyward dev`: the agent's configuration, and commands to try.

use keyward_emulators::cloud::Cloud;
use keyward_http::peer::KernelSupport;

use super::DevEndpoints;

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

#[expect(clippy::too_many_lines, reason = "one template and its values")]
pub(super) fn config_file(endpoints: &DevEndpoints, cloud: &Cloud) -> String {
    let DevEndpoints { dir, socket, local_key, pages, .. } = endpoints;
    let dir = dir.display();
    format!(
        r#"# Written at each start of `keyward dev`: everything here is emulated, or only a trial on this machine.

# The ACL server. It trusts the signatures of the emulated {cloud_name}.
[acl]
listen = "{acl}"
data_dir = "{dir}/acl"

{acl_method}
policies = ["machine"]
ttl = "2m"

[server.acl]
kind = "keyward"
address = "{acl_url}"

# The emulated Vault.
[server.secrets]
kind = "vault"
address = "{secrets}"

# Logs in to the ACL server with the machine's identity. Its tokens cannot be renewed: watch the logins.
[session.instance]
server = "acl"
mount = "cloud"
check_interval = "30s"

{instance_session}

# Logs in to the emulated Vault with {workload_identity}. Watch the renewals.
[session.workload]
server = "secrets"
mount = "{mount}"
check_interval = "30s"

{workload_session}

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

# A file rendered from a secret: change the secret, and the file changes within the interval.
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

# A variable of the programs that `keyward exec` runs.
[env_template.GREETING]
session = "workload"
contents = '{{{{ with secret "secret/data/example" }}}}{{{{ .Data.data.greeting }}}}{{{{ end }}}}'

[listener.local]
address = "unix://{socket}"
mode = "0600"

[listener.loopback]
address = "tcp://{local_api}"
key_file = "{local_key}"

# Pages for a browser: sessions, ACLs, gateway and API history.
[listener.pages]
kind = "ui"
address = "tcp://{pages}"
key_file = "{pages_key}"

[listener.health]
kind = "health"
address = "tcp://{health}"

# Vault's API with the workload's token on each request.
[listener.vault]
kind = "api_proxy"
address = "unix://{vault}"
mode = "0600"
session = "workload"

# The gateway in front of the emulated HCP Terraform, and the file that points Terraform at it.
[gateway]
upstream = "{platform}"
listen = "tcp://{gateway}"
token_file = "{platform_token}"
host = "platform.example.test"
process_token = "local_token"

[gateway.terraform_config_file]
path = "{terraform}"

[agent]
state_dir = "{dir}/state"
# The emulators in this process need more rights than the agent.
sandbox = "off"
"#,
        acl = endpoints.acl.replace("http://", "tcp://"),
        acl_url = endpoints.acl,
        cloud_name = endpoints.cloud.name(),
        acl_method = endpoints.cloud.acl_method(cloud),
        instance_session = endpoints.cloud.instance_session(),
        workload_session = endpoints.cloud.workload_session(),
        workload_identity = endpoints.cloud.workload_identity(),
        mount = endpoints.cloud.mount(),
        secrets = endpoints.secrets,
        socket = socket.display(),
        vault = endpoints.vault.display(),
        local_key = local_key.display(),
        local_api = endpoints.local_api,
        pages_key = endpoints.pages_key.display(),
        health = endpoints.health,
        platform = endpoints.platform,
        gateway = endpoints.gateway,
        platform_token = endpoints.platform_token.display(),
        terraform = endpoints.terraform.display(),
    )
}

/// One screen: what runs where, and what to try.
pub(super) fn format_overview(endpoints: &DevEndpoints) -> String {
    let DevEndpoints { dir, metadata, acl, secrets, platform, gateway, pages, .. } = endpoints;
    let dir = dir.display();
    let socket = endpoints.socket.display();
    format!(
        r"keyward dev: everything on this machine, on loopback; its files are in {dir}

  {cloud}{metadata}
  Vault, emulated          {secrets}
  HCP Terraform, emulated  {platform}
  ACL server               {acl}
  gateway                  http://{gateway}
  agent                    {socket}
  pages for a browser      http://{pages}/  (key: {dir}/pages.key)
  log                      {dir}/dev.log

In another terminal:

  . {dir}/env   # points keyward at all of this
  keyward status                     # both sessions are logged in
  keyward exec -- printenv GREETING  # a secret, read with the machine's own identity
  keyward dev break server           # or cloud, clock, audience, token, platform; shows what keyward does about it
  keyward dev heal                   # shows the recovery

{dir}/guide.txt has more to try: curl, templates, Terraform. Ctrl-C stops it.
{warning}",
        cloud = format_args!("{:<25}", format!("{}, emulated", endpoints.cloud.name())),
        warning = if tells_tcp_owners() { "" } else { OPEN_METADATA },
    )
}

fn tells_tcp_owners() -> bool {
    KernelSupport::probe().features().contains(&("tcp_owners", true))
}

/// Printed where the kernel does not tell whose a TCP connection is.
const OPEN_METADATA: &str = "
Warning: every user of this machine can get the emulated machine's tokens. The kernel does not tell whose a connection is.
";

/// All that can be tried, in lines that can be pasted into a shell.
pub(super) fn format_guide(endpoints: &DevEndpoints) -> String {
    let program = std::env::current_exe().map_or_else(|_| "keyward".to_owned(), |path| path.display().to_string());
    let DevEndpoints { dir, config, metadata, authority, acl, secrets, local_api, health, .. } = endpoints;
    let dir = dir.display();
    let config = config.display();
    let socket = endpoints.socket.display();
    let local_key = endpoints.local_key.display();
    let DevEndpoints { platform, gateway, pages, .. } = endpoints;
    let gateway_token = endpoints.gateway_token.display();
    let terraform = endpoints.terraform.display();
    let vault = endpoints.vault.display();
    let pages_key = endpoints.pages_key.display();
    let acl_token = endpoints.acl_token.display();
    format!(
        r#"keyward dev: all on loopback; keys, secrets and state are in {dir}

  {cloud}{metadata}  {authority}
  ACL server               {acl}
  emulated Vault           {secrets}
  emulated HCP Terraform   {platform}
  gateway                  http://{gateway}
  agent                    {socket}  http://{local_api}  health http://{health}
  pages for a browser      http://{pages}/

Try, in another shell:

  # The token of the machine's login, from the local API and from the sink
  curl -s --unix-socket {socket} -H 'X-Vault-Request: true' 'http://localhost/agent/v1/token?session=instance'; echo
  cat {dir}/instance.token; echo

  # Use it: read the token's own record on the ACL server; read a secret with the other session's token
  curl -s -H "X-Consul-Token: $(cat {dir}/instance.token)" {acl}/v1/acl/token/self
  curl -s -H "X-Vault-Token: $({program} token --config {config} --session workload)" {secrets}/v1/secret/data/example

  # The same without a token: Vault clients work on this socket, and the agent adds the token
  curl -s --unix-socket {vault} -H 'X-Vault-Request: true' http://localhost/v1/secret/data/example

  # A file that a template renders from that secret; it follows the secret within ten seconds
  cat {dir}/greeting.conf

  # The local API on loopback TCP, where callers send a key
  curl -s -H 'X-Vault-Request: true' -H "X-Vault-Token: $(cat {local_key})" 'http://{local_api}/agent/v1/token?session=workload'

  # Status and readiness of the agent
  {program} status --config {config}
  curl -s http://{health}/readyz

  # Open http://{pages}/ in a browser; sign in to the pages of agent and gateway with this key, to those of the ACL server with this token
  cat {pages_key}; echo
  cat {acl_token}; echo

  # Call HCP Terraform through the gateway, which adds the platform token; then replace that token
  curl -s -H "Authorization: Bearer $(cat {gateway_token})" http://{gateway}/api/v2/organizations/example/workspaces
  {program} dev break platform --dir {dir} && {program} dev heal platform --dir {dir}
  {program} gateway tokens --config {config}

  # With Terraform: replace the token during an apply, and it still succeeds
  cd {dir}/terraform; export TF_CLI_CONFIG_FILE={terraform}; terraform init; terraform apply

  # Make {cloud_name} and Vault fail; the agent keeps serving and recovers by itself
  {program} dev break cloud --dir {dir}
  {program} dev break server --dir {dir}
  {program} dev heal --dir {dir}
"#,
        cloud = format_args!("{:<25}", format!("emulated {}", endpoints.cloud.name())),
        cloud_name = endpoints.cloud.name(),
    )
}
