//! Flags about the server, and the commands by which its operator lets the identity in.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use keyward_config::server::address;

use super::answers::{PlanInputs, Question};
use super::shell::{TomlText, quote};

/// Flags about the server that is logged in to.
#[derive(Debug, Args)]
pub(super) struct ServerFlags {
    /// Address of the server, such as `https://vault.example.com:8200`
    #[arg(long, value_name = "ADDRESS", help_heading = "Server")]
    server: Option<String>,
    /// Kind of the server
    #[arg(long, value_enum, default_value_t, help_heading = "Server")]
    server_kind: ServerProduct,
    /// CA bundle of the server's certificate, if it is not from a public CA
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    ca_file: Option<String>,
    /// Namespace of the server
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    server_namespace: Option<String>,
    /// Mount of the auth method [default: its name, such as azure]
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    mount: Option<String>,
    /// Role to log in as
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    role: Option<String>,
}

/// Flag of a login with a token of Azure.
#[derive(Debug, Args)]
pub(super) struct ResourceFlag {
    /// Resource of the identity token, byte for byte as the auth method has it [default: `https://management.azure.com/`]
    #[arg(long, value_name = "URI", help_heading = "Server")]
    resource: Option<String>,
}

/// Product of the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum ServerProduct {
    #[default]
    Vault,
    Openbao,
    Keyward,
}

impl ServerProduct {
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Vault => "vault",
            Self::Openbao => "openbao",
            Self::Keyward => "keyward",
        }
    }
}

/// The server, as flags or answers have it.
#[derive(Debug)]
pub(super) struct ServerSide {
    pub(super) product: ServerProduct,
    pub(super) address: String,
    ca_file: Option<String>,
    namespace: Option<String>,
    pub(super) mount: String,
    pub(super) role: String,
    resource: String,
    /// Paths that the role's policy allows, with one capability each; without any, those below the role's name are an example.
    pub(super) rights: BTreeSet<(String, &'static str)>,
}

/// Audience whose tokens say which machine they belong to.
const RESOURCE: &str = "https://management.azure.com/";

impl ServerFlags {
    /// Takes the values of a login by an auth method whose default mount path is `mount`; only one of Azure has a resource.
    pub(super) fn resolve(
        &self,
        answers: &mut PlanInputs<'_>,
        mount: &str,
        resource: Option<&ResourceFlag>,
    ) -> ServerSide {
        let server = Question {
            check: |text| address(text).map(drop),
            ..Question::new("--server", "address of Vault or OpenBao, such as https://vault.example.com:8200")
        };
        let is_keyward = self.server_kind == ServerProduct::Keyward;
        let role = Question {
            check: if is_keyward { check_acl_name } else { |_| Ok(()) },
            ..Question::new("--role", "role to log in as")
        };
        let question = Question::new("--resource", "resource of the identity token; the slash at the end counts");
        let side = ServerSide {
            product: self.server_kind,
            address: answers.ask_required(server, self.server.as_ref()),
            role: answers.ask_required(role, self.role.as_ref()),
            resource: match resource {
                Some(flag) => answers.ask_with_default(question, flag.resource.as_ref(), RESOURCE),
                None => String::new(),
            },
            mount: self.mount.clone().unwrap_or_else(|| mount.to_owned()),
            ca_file: self.ca_file.clone(),
            namespace: self.server_namespace.clone(),
            rights: BTreeSet::new(),
        };
        for (flag, name) in [("--role", &side.role), ("--mount", &side.mount)] {
            if is_keyward
                && !name.is_empty()
                && let Err(why) = check_acl_name(name)
            {
                answers.invalid.push(format!("{flag} {name}: {why}"));
            }
        }
        side
    }
}

/// Checks a name of keyward's ACL server, which is a table of its configuration.
fn check_acl_name(name: &str) -> Result<(), String> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if (1..=128).contains(&name.len()) && name.bytes().all(is_letter) {
        Ok(())
    } else {
        Err("not a name of the ACL server; write 1 to 128 letters, digits, - and _".to_owned())
    }
}

impl ServerSide {
    /// Sets the path of the CA bundle where keyward runs, if there is one; returns its path here.
    pub(super) fn place_ca_file(&mut self, path: &str) -> Option<String> {
        let file = self.ca_file.take()?;
        self.ca_file = Some(path.to_owned());
        Some(file)
    }

    /// Returns the host of the server's address, by which some logins are bound to it.
    pub(super) fn host(&self) -> String {
        let url = url::Url::parse(&self.address).ok();
        url.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Writes `[server.main]`.
    pub(super) fn write_server(&self, toml: &mut TomlText) {
        toml.section("", "server.main")
            .text("kind", self.product.kind())
            .text("address", &self.address)
            .optional("ca_file", self.ca_file.as_ref());
    }

    /// Writes the keys of `[session.main]` that are about the server.
    pub(super) fn write_session(&self, toml: &mut TomlText) {
        toml.text("mount", &self.mount).optional("namespace", self.namespace.as_ref());
    }

    /// Writes the keys of `[session.main.cloud]` that are about the server.
    pub(super) fn write_cloud(&self, toml: &mut TomlText) {
        toml.text("role", &self.role)
            .comment("Byte for byte as in the server's auth method: the slash at the end counts.")
            .text("resource", &self.resource);
    }

    /// Formats the commands for the server's operator. `bounds` are conditions of the role, such as
    /// `bound_resource_groups=web`, for which the server asks Azure with an application's credentials; those of keyward's ACL
    /// server are `keys` of its configuration.
    pub(super) fn commands(&self, tenant: &str, bounds: &[String], keys: &[String]) -> String {
        self.azure_login(tenant, " client_id=APPLICATION client_secret=@application.secret", bounds, keys)
    }

    /// The same for conditions that the identity token itself proves: the server asks Azure nothing.
    pub(super) fn commands_without_azure(&self, tenant: &str, bounds: &[String], keys: &[String]) -> String {
        self.azure_login(tenant, "", bounds, keys)
    }

    fn azure_login(&self, tenant: &str, application: &str, bounds: &[String], keys: &[String]) -> String {
        if self.product == ServerProduct::Keyward {
            return self.acl_section(tenant, keys);
        }
        let config = [format!("tenant_id={tenant}"), format!("resource={}{application}", quote(&self.resource))];
        self.token_commands("azure", "config", &config, bounds)
    }

    /// Formats the commands that enable an auth method of this type with its `config` at `config_path` below it, unless that is empty
    /// because the method is there, and a role of it with its `bounds`.
    pub(super) fn token_commands(
        &self,
        method: &str,
        config_path: &str,
        config: &[String],
        bounds: &[String],
    ) -> String {
        let (role, mount) = (quote(&self.role), quote(&self.mount));
        let (program, prefix) = match self.product {
            ServerProduct::Openbao => ("bao", "BAO"),
            ServerProduct::Vault | ServerProduct::Keyward => ("vault", "VAULT"),
        };
        let namespace = self.namespace.as_ref().map(|name| format!(" {prefix}_NAMESPACE={}", quote(name)));
        let mut text = format!("export {prefix}_ADDR={}{}\n", quote(&self.address), namespace.unwrap_or_default());
        if config.is_empty() {
            let _ = writeln!(text, "# the auth method at {mount} is there, and verifies tokens of this cluster");
        } else {
            if matches!(method, "aws" | "azure" | "gcp") && self.product == ServerProduct::Openbao {
                text.push_str("# the method is a plugin: register it first, by `bao plugin register`\n");
            }
            let _ = writeln!(text, "{program} auth enable -path={mount} {method}");
            let _ = writeln!(text, "{program} write auth/{mount}/{config_path} {}", config.join(" "));
        }
        let bounds: Vec<String> = bounds.iter().map(|bound| format!(" {bound}")).collect();
        let _ = write!(
            text,
            "{program} policy write {role} - <<'POLICY'
{}POLICY
{program} write auth/{mount}/role/{role} token_policies={role} token_ttl=1h token_max_ttl=24h{}
",
            self.policy(),
            bounds.concat(),
        );
        text
    }

    fn policy(&self) -> String {
        let rule = |path: &str, capability: &str| format!("path \"{path}\" {{ capabilities = [\"{capability}\"] }}\n");
        if self.rights.is_empty() {
            return rule(&format!("secret/data/{}/*", self.role), "read");
        }
        let rules: String = self.rights.iter().map(|(path, capability)| rule(path, capability)).collect();
        let is_unclear = self.rights.iter().any(|(path, capability)| *capability == "read" && !path.contains("/data/"));
        let note = "# in key-value version 2, put data/ after the mount of a path\n";
        format!("{}{rules}", if is_unclear { note } else { "" })
    }

    fn acl_section(&self, tenant: &str, keys: &[String]) -> String {
        let method = [
            format!("issuer = \"https://sts.windows.net/{tenant}/\""),
            format!("discovery_url = \"https://login.microsoftonline.com/{tenant}/.well-known/openid-configuration\""),
            format!("audience = {}", toml::Value::from(self.resource.as_str())),
        ];
        self.method_section(&method, keys)
    }

    /// Formats the section for the configuration of keyward's ACL server: keys of the method, and of its role.
    pub(super) fn method_section(&self, method: &[String], role: &[String]) -> String {
        let Self { mount, role: name, .. } = self;
        format!(
            "# into the ACL server's configuration, then: sudo systemctl restart keyward
[acl.method.{mount}]
{}

[acl.method.{mount}.role.{name}]
{}
policies = [\"{name}\"]
",
            method.join("\n"),
            role.join("\n"),
        )
    }
}
