//! `[identity.NAME]`: the machine's identity, of which tools get tokens for the listed resources.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keyward_agent::identity::{
    AwsEndpoints, AwsRoleOptions, GcpEndpoints, GcpIdentityOptions, GcpOrigin, IdentityMethod, IdentityOrigin,
    IdentityTokenOrigin, ManagedIdentity, ProviderVariables,
};
use keyward_agent::identity_tokens::IdentityTokenOptions;
use keyward_machine::clock::Clock;
use keyward_telemetry::error_code::ErrorCode;

use super::diagnostic::Diagnostics;
use super::reader::Reader;
use super::references::Text;
use super::tree::quote;
use super::values::{self, ValueError, did_you_mean, invalid};
use super::{IdentityTokenName, PathUse, aws, cloud, gcp};

/// Kinds of the machine's identity.
const ORIGINS: [&str; 3] = ["cloud", "gcp", "jwt"];

/// Greatest number of resources of an identity: a token for each is kept.
const MAX_RESOURCES: usize = 32;

/// The identities that listeners and callers may name.
#[derive(Debug, Default)]
pub(super) struct Identities(BTreeMap<String, Vec<String>>);

/// Reads all of them, `None` for one whose origin could not be read, and their names.
pub(super) fn read_all(tables: Vec<(String, Reader<'_>)>) -> (Vec<Option<IdentityTokenOptions>>, Identities) {
    let mut identities = Identities::default();
    let mut all = Vec::new();
    for (name, reader) in tables {
        let identity = read(name.clone(), reader);
        let resources = identity.as_ref().map(|identity| identity.resources.clone());
        identities.0.insert(name, resources.unwrap_or_default());
        all.push(identity);
    }
    (all, identities)
}

fn read(name: String, mut reader: Reader<'_>) -> Option<IdentityTokenOptions> {
    let aws_role = reader.table("aws_role").map(aws_role);
    if reader.locate("resources").is_none() && aws_role.is_none() {
        let meaning = "the resources that tools get tokens for, such as [\"https://management.azure.com/\"]";
        reader.missing("resources", meaning);
    }
    let texts = reader.list("resources").unwrap_or_default();
    let mut resources = Vec::new();
    for text in &texts {
        let Some(resource) = reader.parse(text, resource) else { continue };
        if resources.contains(&resource) {
            let message = (ErrorCode::DuplicateSetting, format!("{} is listed twice", text.display()));
            reader.error(text.at, "resources", message, "list each resource once");
        } else {
            resources.push(resource);
        }
    }
    if let Some(at) = reader.locate("resources") {
        if texts.is_empty() {
            reader.error(at, "resources", "lists no resource", "list those that tools may get tokens for");
        }
        if texts.len() > MAX_RESOURCES {
            let message = format!("lists more than {MAX_RESOURCES} resources, for each of which a token is kept");
            reader.error(at, "resources", message, "list those that tools of this machine use");
        }
    }
    let origin = origin(&mut reader);
    let required = reader.flag("required", true);
    reader.finish();
    Some(IdentityTokenOptions { name, resources, origin: origin?, aws_role, required })
}

/// Reads the kind of the identity, of which there is one.
fn origin(reader: &mut Reader<'_>) -> Option<IdentityTokenOrigin> {
    let present: Vec<_> = ORIGINS.into_iter().filter_map(|name| Some((reader.locate(name)?, name))).collect();
    let Some((_, name)) = present.first().copied() else {
        let advice = format!("say whose tokens they are: write [{}], or gcp or jwt", reader.key("cloud"));
        reader.missing("cloud", &advice);
        return None;
    };
    for (at, other) in present.iter().skip(1) {
        let message = format!("conflicts with {}: an identity has one origin", reader.key(name));
        reader.error(*at, other, message, "keep one, or write another identity");
        let _ = reader.table(other);
    }
    let table = reader.table(name)?;
    Some(match name {
        "cloud" => IdentityTokenOrigin::Cloud(Box::new(cloud::read_for_tools(table))),
        "gcp" => IdentityTokenOrigin::Gcp(Box::new(google(table))),
        _ => file(table),
    })
}

/// Reads the role of AWS whose credentials tools get for the identity's token.
fn aws_role(mut table: Reader<'_>) -> AwsRoleOptions {
    let role_arn = table.required("role_arn", "the ARN of the role, such as \"arn:aws:iam::123456789012:role/web\"");
    let role_arn = role_arn.and_then(|text| table.parse(&text, role)).unwrap_or_default();
    let meaning = "the audience of the token, as the identity provider in AWS has it";
    let audience =
        table.required("audience", meaning).and_then(|text| table.parse(&text, resource)).unwrap_or_default();
    let session_name = table.parse_text("session_name", session_name).unwrap_or_else(|| "keyward".to_owned());
    let options = AwsRoleOptions {
        role_arn,
        audience,
        session_name,
        // The bounds of AWS; a role may have a lower one.
        duration: table.duration_if_given("duration", Duration::from_mins(15)..=Duration::from_hours(12)),
        region: table.parse_text("region", aws::region),
        variables: ProviderVariables::of_aws(table.scope.environment.variables.clone()),
        endpoints: AwsEndpoints::provider(),
    };
    cloud::report_variables(&table, options.url().map(drop));
    table.finish();
    options
}

fn role(text: &str) -> Result<String, ValueError> {
    let is_role =
        text.starts_with("arn:") && text.contains(":role/") && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_role {
        return Ok(text.to_owned());
    }
    invalid("is not the ARN of a role", "write one such as \"arn:aws:iam::123456789012:role/web\"")
}

/// Names that AWS allows (docs.aws.amazon.com, `AssumeRoleWithWebIdentity`).
fn session_name(text: &str) -> Result<String, ValueError> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_+=,.@-".contains(&byte);
    if (2..=64).contains(&text.len()) && text.bytes().all(is_part) {
        return Ok(text.to_owned());
    }
    invalid("is not the name of a session", "write 2 to 64 letters, digits, or +=,.@-")
}

fn google(mut table: Reader<'_>) -> GcpIdentityOptions {
    let service_account = table.parse_text("service_account", gcp::service_account);
    let options = GcpIdentityOptions {
        audience: String::new(),
        origin: GcpOrigin::Instance { service_account: service_account.unwrap_or_else(|| "default".to_owned()) },
        variables: ProviderVariables::of_gcp(table.scope.environment.variables.clone()),
        endpoints: GcpEndpoints::provider(),
    };
    cloud::report_variables(&table, options.build(Clock::System).map(drop));
    table.finish();
    options
}

fn file(mut table: Reader<'_>) -> IdentityTokenOrigin {
    let text = table.required("file", "the file with a signed token that something else replaces before its end");
    let file = text.and_then(|text| {
        let path = table.parse(&text, values::secret_file_path)?;
        table.record_path(&text, &path, PathUse::ReadSecret);
        Some(path)
    });
    table.finish();
    IdentityTokenOrigin::File(file.unwrap_or_default())
}

fn resource(text: &str) -> Result<String, ValueError> {
    if text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.ends_with("/.default") {
        return Ok(text.to_owned());
    }
    invalid("is not a resource", "write its URI or id, without the /.default of a scope")
}

impl Identities {
    /// Reads the identities that a listener serves: those in `identities`, or all.
    pub(super) fn read_served(&self, reader: &mut Reader<'_>) -> Vec<String> {
        if self.0.is_empty() {
            let advice = "define one with [identity.NAME]";
            reader.scope.diagnostics.missing(reader.at, &reader.path, "there is no identity to serve", advice);
        }
        self.read_names(reader).unwrap_or_else(|| self.0.keys().cloned().collect())
    }

    /// Reads `identities`; `None` without the key.
    pub(super) fn read_names(&self, reader: &mut Reader<'_>) -> Option<Vec<String>> {
        let texts = reader.list("identities")?;
        let names: BTreeSet<_> = texts
            .into_iter()
            .filter(|text| self.exists(reader.scope.diagnostics, text))
            .map(|text| text.value)
            .collect();
        Some(names.into_iter().collect())
    }

    /// Returns true if an identity of this name exists, else records an error.
    pub(super) fn exists(&self, diagnostics: &Diagnostics, text: &Text) -> bool {
        let exists = self.0.contains_key(&text.value);
        if !exists && !text.unknown {
            let names: Vec<_> = self.0.keys().map(String::as_str).collect();
            let advice = did_you_mean(&text.value, &names).unwrap_or_else(|| match names.as_slice() {
                [] => "define it with [identity.NAME]".to_owned(),
                names => format!("there are: {}", names.join(", ")),
            });
            let message = (ErrorCode::UnknownName, format!("there is no identity {}", quote(&text.value)));
            diagnostics.missing(text.at, &text.key, message, advice);
        }
        exists
    }
}

impl Identities {
    /// Reads `identity` and `resource` of a file that holds a token; `None` without the first key, or if there is none such.
    pub(super) fn read_token(&self, reader: &mut Reader<'_>) -> Option<IdentityTokenName> {
        let text = reader.text("identity");
        let resource = reader.text("resource");
        let Some(text) = text else {
            if let Some(at) = reader.locate("resource") {
                reader.error(at, "resource", "has no effect without identity", "write identity, or leave it out");
            }
            return None;
        };
        let resources = self.0.get(&text.value).filter(|_| self.exists(reader.scope.diagnostics, &text))?;
        let resource = match (resource, resources.as_slice()) {
            (Some(resource), listed) => {
                if !listed.contains(&resource.value) && !resource.unknown {
                    let message = format!("{} is not in resources of identity {}", resource.display(), text.value);
                    reader.error(resource.at, "resource", message, format!("write one of {}", listed.join(", ")));
                }
                resource.value
            }
            (None, [only]) => only.clone(),
            (None, listed) => {
                reader.missing("resource", &format!("write one of {}", listed.join(", ")));
                return None;
            }
        };
        Some(IdentityTokenName { identity: text.value, resource })
    }
}

/// Describes an identity for `keyward check`, one clause per entry.
pub(super) fn describe(identity: &IdentityTokenOptions, references: &BTreeMap<String, String>) -> Vec<String> {
    let describe_value = |key: &str, value: &str| {
        references.get(&format!("identity.{}.{key}", identity.name)).map_or(value, String::as_str).to_owned()
    };
    let whose = match identity.origin.to_method("") {
        IdentityMethod::Cloud(options) => match options.from {
            IdentityOrigin::Environment => "the Azure identity of its environment".to_owned(),
            IdentityOrigin::Instance(ManagedIdentity::System) => "this machine's managed identity".to_owned(),
            IdentityOrigin::Instance(ManagedIdentity::ObjectId(id)) => {
                format!("the managed identity with the object id {}", describe_value("cloud.object_id", &id))
            }
            IdentityOrigin::Instance(ManagedIdentity::ClientId(id)) => {
                format!("the managed identity with the client id {}", describe_value("cloud.client_id", &id))
            }
        },
        IdentityMethod::Gcp(options) => match options.origin {
            GcpOrigin::Instance { service_account } => {
                let account = describe_value("gcp.service_account", &service_account);
                format!("this machine's Google identity of the service account {account}")
            }
            GcpOrigin::SignJwt { .. } | GcpOrigin::Key { .. } => "a Google service account".to_owned(),
        },
        IdentityMethod::Jwt(options) => {
            format!("the signed token in {}", describe_value("jwt.file", &options.file.display().to_string()))
        }
        _ => "this machine".to_owned(),
    };
    let mut does = vec![format!("gives tools tokens of {whose}")];
    if !identity.resources.is_empty() {
        let resources = references.get(&format!("identity.{}.resources", identity.name)).cloned();
        does.push(format!("only for {}", resources.unwrap_or_else(|| identity.resources.join(", "))));
    }
    does.extend(identity.aws_role.as_ref().map(|role| {
        let role_arn = describe_value("aws_role.role_arn", &role.role_arn);
        let audience = describe_value("aws_role.audience", &role.audience);
        format!("gives tools the AWS credentials of {role_arn}, for a token with the audience {audience}")
    }));
    if !identity.required {
        does.push("is not required for readiness".to_owned());
    }
    does
}
