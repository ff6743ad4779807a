//! `[listener.NAME] kind = "systemd_credentials"`: the units that may load credentials, and what they load.

use std::collections::BTreeMap;
use std::time::Duration;

use keyward_agent::secrets::{DerivedTokenOptions, SecretRequest};
use keyward_agent::systemd_credentials::{GrantRule, PeerName, UnitPattern, is_credential_name};
use keyward_agent::templates::TemplateOptions;
use keyward_http::server::{Endpoint, UnixSocket};
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::time_format::format_duration;

use super::credential::secret_path;
use super::derived_token;
use super::diagnostic::Location;
use super::reader::Reader;
use super::template::{self, TemplateContext};
use super::tree::quote;
use super::values::{ValueError, invalid};
use super::{CredentialContent, CredentialGrant, SystemdCredentials, Template};

/// The keys that only such a listener has, besides its table.
pub(super) const KEYS: [&str; 1] = ["wait"];

/// Default mode of the socket: systemd connects as root, which needs no right to it.
const DEFAULT_SOCKET_MODE: u32 = 0o600;

/// Default of `wait`: less than the 90 s that systemd gives a unit to start (`DefaultTimeoutStartSec=`).
const DEFAULT_WAIT: Duration = Duration::from_mins(1);

/// Checks the socket: a unix socket that others than root need not reach.
pub(super) fn check_socket(reader: &mut Reader<'_>, endpoint: Option<Endpoint>, at: Location) -> Option<Endpoint> {
    let diagnostics = reader.scope.diagnostics;
    match endpoint {
        Some(Endpoint::Tcp(_)) => {
            let advice = "write an address such as \"unix:///run/keyward/credentials.sock\"";
            diagnostics.error(at, &reader.key("address"), "systemd loads credentials only from unix sockets", advice);
            None
        }
        Some(Endpoint::Unix(socket)) => {
            let mode = if reader.has("mode") { socket.mode } else { DEFAULT_SOCKET_MODE };
            if mode & 0o066 != 0 {
                let at = reader.locate("mode").unwrap_or(reader.at);
                let message = (
                    ErrorCode::UnsafePermissions,
                    format!("{mode:04o} lets users other than root connect, which has no use"),
                );
                diagnostics.warning(at, &reader.key("mode"), message, "leave it out");
            }
            Some(Endpoint::Unix(UnixSocket { mode, ..socket }))
        }
        other => other,
    }
}

/// Reads the credentials of a listener, and the derived token that units get instead of a session's.
pub(super) fn read(
    listener: &str,
    reader: &mut Reader<'_>,
    context: TemplateContext<'_>,
) -> (SystemdCredentials, Option<DerivedTokenOptions>) {
    let wait = reader.duration("wait", DEFAULT_WAIT, Duration::ZERO..=Duration::from_hours(1));
    let tables = reader.tables("credential");
    if tables.is_empty() && !reader.has("credential") {
        reader.missing(
            "credential",
            "write [listener.NAME.credential.NAME] for each credential, with the units that load it",
        );
    }
    let mut granted = BTreeMap::new();
    let grants: Vec<_> =
        tables.into_iter().filter_map(|(name, table)| grant(listener, name, table, context, &mut granted)).collect();
    let derived_token = derived_token::read(reader, false);
    let tokens: Vec<_> = grants.iter().filter(|grant| grant.content == CredentialContent::Token).collect();
    if derived_token.is_some() {
        for grant in &tokens {
            context.sessions.reject_derived(reader, "derived_token", &grant.session);
        }
        if tokens.is_empty() {
            let at = reader.locate("derived_token").unwrap_or(reader.at);
            let message = "has no effect: no credential of the listener is a token";
            reader.error(at, "derived_token", message, "leave it out, or write token = true");
        }
    }
    (SystemdCredentials { wait, grants }, derived_token)
}

/// Units and ids that are granted already, with the location and the name of the credential.
type GrantedNames = BTreeMap<(UnitPattern, String), (Location, String)>;

fn grant(
    listener: &str,
    name: String,
    mut reader: Reader<'_>,
    context: TemplateContext<'_>,
    granted: &mut GrantedNames,
) -> Option<CredentialGrant> {
    let id = reader.parse_text("id", credential_id);
    if id.is_none() && name.len() > PeerName::MAX_BOTH {
        reader.missing("id", "the id in the unit, as the name is too long for systemd");
    }
    let id = id.unwrap_or_else(|| name.clone());
    if reader.locate("units").is_none() {
        reader.missing("units", "the units that may load it, such as [\"app.service\"]");
    }
    let mut units = Vec::new();
    for text in reader.one_or_more("units") {
        let Some(unit) = reader.parse(&text, unit_pattern) else { continue };
        let diagnostics = reader.scope.diagnostics;
        if unit.shortest() + id.len() > PeerName::MAX_BOTH {
            let message = format!(
                "systemd cannot ask for {} of {unit}: together longer than {} bytes",
                quote(&id),
                PeerName::MAX_BOTH
            );
            diagnostics.error(
                text.at,
                &text.key,
                message,
                "write a shorter id, here and in the unit's LoadCredential=",
            );
        }
        if let Some((first, other)) = granted.insert((unit.clone(), id.clone()), (text.at, name.clone())) {
            let message = format!(
                "{} of {unit} is also granted by credential {other}, at {}",
                quote(&id),
                diagnostics.name(first)
            );
            diagnostics.error(text.at, &text.key, (ErrorCode::DuplicateSetting, message), "grant it once");
        }
        units.push(unit);
    }
    let session = template::session(&mut reader, context.sessions);
    let content = content(listener, &name, &session, &mut reader, context);
    reader.finish();
    Some(CredentialGrant { name, rule: GrantRule { units, id }, session, content: content? })
}

/// Reads what the unit gets: `path` and `field`, `source` or `contents`, or `token`.
fn content(
    listener: &str,
    name: &str,
    session: &str,
    reader: &mut Reader<'_>,
    context: TemplateContext<'_>,
) -> Option<CredentialContent> {
    let token = reader.flag("token", false);
    let is_secret = reader.has("path") || reader.has("field");
    let is_template = reader.has("source") || reader.has("contents");
    match (is_secret, is_template, token) {
        (true, false, false) => {
            let path = reader.required("path", "the secret, such as \"secret/data/app\", without /v1/");
            let at = path.as_ref().map_or(reader.at, |text| text.at);
            let path = path.and_then(|text| reader.parse(&text, secret_path));
            let field =
                reader.required("field", "the field of the secret, such as \"password\"").map(|text| text.value);
            template::reject_without_secrets(reader, at, &reader.key("path"), session, context.sessions);
            let secrets = context.secrets(reader, session);
            Some(CredentialContent::Secret { request: SecretRequest::read(path?), field: field?, secrets })
        }
        (false, true, false) => {
            let text = template::text(&format!("{listener}/{name}"), reader, session, context.sessions, Vec::new());
            let secrets = context.secrets(reader, session);
            let options = TemplateOptions {
                text,
                file: None,
                debounce: template::DEFAULT_DEBOUNCE,
                interval: secrets.interval,
                required: true,
            };
            let template = Template { session: session.to_owned(), options, secrets };
            Some(CredentialContent::Template(Box::new(template)))
        }
        (false, false, true) => Some(CredentialContent::Token),
        (false, false, false) => {
            let meaning = "write path and field of a secret, source or contents of a template, or token = true for the session's token";
            reader.missing("path", meaning);
            None
        }
        _ => {
            for key in ["path", "field", "source", "contents"] {
                reader.locate(key);
            }
            let message = (ErrorCode::ConflictingKeys, "has several contents");
            let advice = "keep one of path with field, source, contents and token";
            reader.scope.diagnostics.error(reader.at, &reader.path, message, advice);
            None
        }
    }
}

fn credential_id(text: &str) -> Result<String, ValueError> {
    if is_credential_name(text) {
        return Ok(text.to_owned());
    }
    invalid("is not the id of a credential", "write the name before the colon in the unit's LoadCredential=")
}

fn unit_pattern(text: &str) -> Result<UnitPattern, ValueError> {
    let advice = "write the full name, such as \"app.service\", or \"worker@*.service\" for all instances";
    UnitPattern::parse(text).or_else(|error| invalid(error.to_string(), advice))
}

/// Describes the credentials for `keyward check`, one clause per entry.
pub(super) fn describe(credentials: &SystemdCredentials) -> Vec<String> {
    let mut does = Vec::new();
    for CredentialGrant { rule, session, content, .. } in &credentials.grants {
        let units: Vec<_> = rule.units.iter().map(ToString::to_string).collect();
        let source = match content {
            CredentialContent::Token => format!("the token of session {session}"),
            CredentialContent::Secret { request, field, .. } => {
                format!("the field {field} of {}, read by session {session}", request.path)
            }
            CredentialContent::Template(template) => {
                let from = template.options.text.file.as_ref();
                let from = from.map_or("its contents".to_owned(), |file| file.display().to_string());
                format!("{from}, rendered with secrets read by session {session}")
            }
        };
        does.push(format!("gives {} the credential {}: {source}", units.join(", "), rule.id));
    }
    does.push(format!("lets a unit wait up to {} for it", format_duration(credentials.wait)));
    does
}
