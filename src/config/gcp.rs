//! `[session.NAME.gcp]`: the `gcp` method, a token signed by Google or by the key of a service account.

use keyward_agent::identity::{GcpEndpoints, GcpIdentityOptions, GcpOrigin, ProviderVariables};
use keyward_machine::clock::Clock;

use super::PathUse;
use super::reader::Reader;
use super::values::{self, ValueError, invalid};

/// Type of a role of the server's method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoleType {
    Gce,
    Iam,
}

/// Reads the method's parameters. Returns the role and the identity source.
pub(super) fn read(mut reader: Reader<'_>) -> (String, GcpIdentityOptions) {
    let role = super::cloud::role(&mut reader, true);
    let origin = origin(&mut reader);
    let audience = reader.parse_text("audience", audience);
    let options = GcpIdentityOptions {
        audience: audience.unwrap_or_else(|| origin.audience_of_role(&role)),
        origin,
        variables: ProviderVariables::of_gcp(reader.scope.environment.variables.clone()),
        endpoints: GcpEndpoints::provider(),
    };
    if let Err(error) = options.build(Clock::System) {
        let advice = "fix it on the machine that runs the agent";
        reader.scope.diagnostics.missing_on_host(reader.at, &reader.path, error.to_string(), advice);
    }
    reader.finish();
    (role, options)
}

fn origin(reader: &mut Reader<'_>) -> GcpOrigin {
    let kind = reader.choice("type", &[("gce", RoleType::Gce), ("iam", RoleType::Iam)]).unwrap_or(RoleType::Gce);
    let service_account = reader.parse_text("service_account", service_account);
    let file = reader.text("credentials_file").and_then(|text| {
        let path = reader.parse(&text, values::secret_file_path)?;
        reader.record_path(&text, &path, PathUse::ReadSecret);
        reader.warn_if_readable_by_others(&text, &path);
        Some(path)
    });
    if reader.locate("credentials_file").is_some() {
        if kind == RoleType::Gce {
            let why = "a key signs only for roles of the type iam";
            reader.conflict("credentials_file", "type = \"gce\"", why);
        }
        if reader.locate("service_account").is_some() {
            reader.conflict("service_account", "credentials_file", "the file names the service account");
        }
        return GcpOrigin::Key { file: file.unwrap_or_default() };
    }
    match kind {
        RoleType::Gce => {
            GcpOrigin::Instance { service_account: service_account.unwrap_or_else(|| "default".to_owned()) }
        }
        RoleType::Iam => GcpOrigin::SignJwt { service_account },
    }
}

fn audience(text: &str) -> Result<String, ValueError> {
    if text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    invalid(
        "is not an audience",
        "write a URL that ends in vault/ROLE, such as \"https://vault.example.com/vault/web\"",
    )
}

pub(super) fn service_account(text: &str) -> Result<String, ValueError> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    if text.bytes().all(is_part) && !text.starts_with('.') {
        return Ok(text.to_owned());
    }
    invalid("is not a service account", "write its e-mail, such as \"web@project.iam.gserviceaccount.com\"")
}
