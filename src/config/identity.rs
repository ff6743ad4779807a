//! `[identity.NAME]`: the machine's identity, of which tools get tokens for the listed resources.

use std::collections::{BTreeMap, BTreeSet};

use keyward_agent::identity::{
    GcpEndpoints, GcpIdentityOptions, GcpOrigin, IdentityMethod, IdentityOrigin, IdentityTokenOrigin, ManagedIdentity,
    ProviderVariables,
};
use keyward_agent::identity_tokens::IdentityTokenOptions;
use keyward_machine::clock::Clock;
use keyward_telemetry::error_code::ErrorCode;

use super::reader::Reader;
use super::references::Text;
use super::tree::quote;
use super::values::{self, ValueError, did_you_mean, invalid};
use super::{PathUse, cloud, gcp};

/// Kinds of the machine's identity.
const ORIGINS: [&str; 3] = ["cloud", "gcp", "jwt"];

/// Greatest number of resources of an identity: a token for each is kept.
const MAX_RESOURCES: usize = 32;

/// The identities that listeners and callers may name.
#[derive(Debug, Default)]
pub(super) struct Identities(BTreeSet<String>);

/// Reads all of them, `None` for one whose origin could not be read, and their names.
pub(super) fn read_all(tables: Vec<(String, Reader<'_>)>) -> (Vec<Option<IdentityTokenOptions>>, Identities) {
    let names = tables.iter().map(|(name, _)| name.clone()).collect();
    (tables.into_iter().map(|(name, reader)| read(name, reader)).collect(), Identities(names))
}

fn read(name: String, mut reader: Reader<'_>) -> Option<IdentityTokenOptions> {
    if reader.locate("resources").is_none() {
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
    Some(IdentityTokenOptions { name, resources, origin: origin?, required })
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
        self.read_names(reader).unwrap_or_else(|| self.0.iter().cloned().collect())
    }

    /// Reads `identities`; `None` without the key.
    pub(super) fn read_names(&self, reader: &mut Reader<'_>) -> Option<Vec<String>> {
        let texts = reader.list("identities")?;
        let names: BTreeSet<_> =
            texts.into_iter().filter(|text| self.exists(reader, text)).map(|text| text.value).collect();
        Some(names.into_iter().collect())
    }

    fn exists(&self, reader: &Reader<'_>, text: &Text) -> bool {
        let exists = self.0.contains(&text.value);
        if !exists && !text.unknown {
            let names: Vec<_> = self.0.iter().map(String::as_str).collect();
            let advice = did_you_mean(&text.value, &names).unwrap_or_else(|| match names.as_slice() {
                [] => "define it with [identity.NAME]".to_owned(),
                names => format!("there are: {}", names.join(", ")),
            });
            let message = (ErrorCode::UnknownName, format!("there is no identity {}", quote(&text.value)));
            reader.scope.diagnostics.missing(text.at, &text.key, message, advice);
        }
        exists
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
    let resources = references.get(&format!("identity.{}.resources", identity.name)).cloned();
    does.push(format!("only for {}", resources.unwrap_or_else(|| identity.resources.join(", "))));
    if !identity.required {
        does.push("is not required for readiness".to_owned());
    }
    does
}
