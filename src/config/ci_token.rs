//! `[session.NAME.jwt]` with the token of a CI job, which is in no file.

use keyward_agent::identity::{CiTokenOptions, CiTokenOrigin, ProviderVariables};
use keyward_machine::clock::Clock;

use super::reader::Reader;
use super::values::{ValueError, invalid};

/// Keys that take the token from the job instead of a file.
const KEYS: [&str; 2] = ["variable", "ci"];

/// Returns true if the table takes its token from a CI job.
pub(super) fn is_named(reader: &Reader<'_>) -> bool {
    KEYS.iter().any(|key| reader.has(key))
}

/// CI system that gives tokens to its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CiSystem {
    GitHubActions,
    AzureDevOps,
}

const SYSTEMS: [(&str, CiSystem); 2] =
    [("github-actions", CiSystem::GitHubActions), ("azure-devops", CiSystem::AzureDevOps)];

/// Reads the method's parameters. Returns the role, if the method has one, and the identity source.
pub(super) fn read(mut reader: Reader<'_>, wants_role: bool) -> (String, CiTokenOptions) {
    let role = super::cloud::role(&mut reader, wants_role);
    for key in ["file", "remove_after_reading"] {
        if reader.locate(key).is_some() {
            reader.conflict(key, "variable and ci", "the token has one origin");
        }
    }
    let variable = reader.parse_text("variable", variable);
    let system = reader.choice("ci", &SYSTEMS);
    if reader.has("variable") && reader.has("ci") {
        reader.conflict("ci", "variable", "the token has one origin");
    }
    let audience = reader.value("audience");
    let service_connection = reader.value("service_connection");
    if system != Some(CiSystem::GitHubActions)
        && let Some(at) = reader.locate("audience")
    {
        reader.error(at, "audience", "has no effect without ci = \"github-actions\"", "leave it out");
    }
    let origin = match (variable, system) {
        (Some(variable), _) => CiTokenOrigin::Variable(variable),
        (None, Some(CiSystem::AzureDevOps)) => {
            if !reader.has("service_connection") {
                reader.missing("service_connection", "the id of the service connection that the token is for");
            }
            CiTokenOrigin::AzureDevOps { service_connection: service_connection.unwrap_or_default() }
        }
        (None, _) => CiTokenOrigin::GitHubActions { audience },
    };
    if system != Some(CiSystem::AzureDevOps)
        && let Some(at) = reader.locate("service_connection")
    {
        reader.error(at, "service_connection", "has no effect without ci = \"azure-devops\"", "leave it out");
    }
    let name = match &origin {
        CiTokenOrigin::Variable(name) => Some(name.as_str()),
        CiTokenOrigin::GitHubActions { .. } | CiTokenOrigin::AzureDevOps { .. } => None,
    };
    let variables = ProviderVariables::of_ci(reader.scope.environment.variables.clone(), name);
    let options = CiTokenOptions { origin, variables, ca: None, is_local: false };
    if let Err(error) = options.build(Clock::System) {
        let advice = "run keyward in the job that has it";
        reader.scope.diagnostics.missing_on_host(reader.at, &reader.path, error.to_string(), advice);
    }
    reader.finish();
    (role, options)
}

fn variable(text: &str) -> Result<String, ValueError> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if text.bytes().all(is_part) && !text.starts_with(|first: char| first.is_ascii_digit()) {
        return Ok(text.to_owned());
    }
    invalid("is not the name of a variable", "write its name alone, such as \"VAULT_ID_TOKEN\"")
}

/// Describes the proof for `keyward check`.
pub(super) fn describe(options: &CiTokenOptions, describe_value: &impl Fn(&str, &str) -> String) -> String {
    match &options.origin {
        CiTokenOrigin::Variable(name) => {
            format!("authenticates with the signed token in the variable {}", describe_value("variable", name))
        }
        CiTokenOrigin::GitHubActions { audience: None } => {
            "authenticates with the job's token of GitHub Actions".to_owned()
        }
        CiTokenOrigin::GitHubActions { audience: Some(audience) } => {
            let audience = describe_value("audience", audience);
            format!("authenticates with the job's token of GitHub Actions for the audience {audience}")
        }
        CiTokenOrigin::AzureDevOps { service_connection } => {
            let connection = describe_value("service_connection", service_connection);
            format!("authenticates with the job's token of Azure DevOps for the service connection {connection}")
        }
    }
}
