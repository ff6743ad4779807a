//! `[sink.NAME]`: a file that holds the token of a session, or one of an identity for tools.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use keyward_agent::encrypted_file::PersistOptions;
use keyward_agent::output_watch::OnMissing;
use keyward_agent::secrets::DerivedTokenKind;
use keyward_agent::server_client::ServerKind;
use keyward_agent::sinks::{OnExpiry, SinkEncryption, SinkFormat, SinkOptions};
use keyward_agent::token_lifecycle;
use keyward_telemetry::error_code::ErrorCode;

use super::agent::STATE_DIR;
use super::derived_token;
use super::diagnostic::Location;
use super::identity::Identities;
use super::reader::Reader;
use super::tree::quote;
use super::values::{self, ValueError, did_you_mean, invalid};
use super::{PathUse, Session, Sink, SinkOrigin};

/// The default mode of a sink: the owner writes, the group reads.
const DEFAULT_FILE_MODE: u32 = 0o640;

/// Reads all sinks. Two may not share a file, nor may two take the same single-use token.
pub(super) fn read_all(tables: Vec<(String, Reader<'_>)>, sessions: &Sessions, identities: &Identities) -> Vec<Sink> {
    let mut files: BTreeMap<PathBuf, (Location, String)> = BTreeMap::new();
    let mut wrapped_token_sinks: BTreeMap<String, String> = BTreeMap::new();
    let mut sinks = Vec::new();
    for (name, mut reader) in tables {
        let at = reader.locate("path").unwrap_or(reader.at);
        let diagnostics = reader.scope.diagnostics;
        let path = reader.path.clone();
        let table = reader.at;
        let sink = read(name.clone(), reader, sessions, identities);
        if !sink.options.path.as_os_str().is_empty()
            && let Some((first, other)) = files.insert(sink.options.path.clone(), (at, name.clone()))
        {
            let message =
                (ErrorCode::DuplicateSetting, format!("also the file of sink {other}, at {}", diagnostics.name(first)));
            diagnostics.error(at, &format!("{path}.path"), message, "give each sink its own file");
        }
        if let Some(session) = sink.session().filter(|session| sessions.is_wrapped(session))
            && let Some(other) = wrapped_token_sinks.insert(session.to_owned(), name)
        {
            let message = format!("takes the wrapped token of session {session}, like sink {other}");
            diagnostics.error(table, &path, message, "keep one: a wrapped token can be unwrapped once");
        }
        sinks.push(sink);
    }
    sinks
}

fn read(name: String, mut reader: Reader<'_>, sessions: &Sessions, identities: &Identities) -> Sink {
    let has_identity = reader.has("identity");
    let token = identities.read_token(&mut reader);
    if has_identity {
        for key in IDENTITY_EXCLUDES {
            if reader.locate(key).is_some() {
                reader.conflict(key, "identity", "the file holds the token of an identity, as it is");
            }
        }
    }
    let session = if has_identity { String::new() } else { sessions.one_of(&mut reader).unwrap_or_default() };
    let shared_folder = reader.flag("shared_folder", false);
    let path = reader.required("path", "the file to write, such as \"/run/keyward/token\"");
    let path = path.and_then(|text| {
        let path = reader.parse(&text, file_path)?;
        reader.check_parent_folder(&text, &path);
        if !shared_folder {
            reader.check_folder_not_shared(&text, &path);
        }
        Some(path)
    });
    let variable = if sessions.is_consul(&session) { "CONSUL_HTTP_TOKEN" } else { "VAULT_TOKEN" };
    let formats = [("raw", SinkFormat::Raw), ("json", SinkFormat::Json), ("env", SinkFormat::Env(variable))];
    let format = reader.choice("format", &formats).unwrap_or(SinkFormat::Raw);
    let derive = derive(&mut reader, sessions, &session);
    if (sessions.is_wrapped(&session) || matches!(derive, Some(DerivedTokenKind::Wrapped(_))))
        && format != SinkFormat::Json
    {
        let at = reader.locate("format").unwrap_or(reader.at);
        let subject = if sessions.is_wrapped(&session) { format!("session {session}") } else { "it".to_owned() };
        let message = format!("{subject} wraps its token, which only a JSON file can hold");
        reader.scope.diagnostics.missing(at, &reader.key("format"), message, "write format = \"json\"");
    }
    let encrypt = encrypt(&mut reader);
    if encrypt.is_some() && matches!(format, SinkFormat::Env(_)) {
        reader.conflict("format", "encrypt", "an environment file cannot hold an encrypted token");
    }
    let differs_each_write =
        encrypt.is_some() || sessions.is_wrapped(&session) || matches!(derive, Some(DerivedTokenKind::Wrapped(_)));
    if differs_each_write && let Some(at) = reader.locate("on_missing") {
        let message = "not allowed for a sink whose content differs at each write";
        reader.error(at, "on_missing", message, "leave it out: the file is not watched");
    }
    let on_missing = Some(on_missing(&mut reader)).filter(|_| !differs_each_write);
    let mode = match encrypt {
        Some(_) => reader.mode("mode", DEFAULT_FILE_MODE),
        None => reader.private_mode(DEFAULT_FILE_MODE, "the token"),
    };
    let on_expiry = [("keep", OnExpiry::Keep), ("truncate", OnExpiry::Truncate), ("remove", OnExpiry::Remove)];
    let options = SinkOptions {
        name,
        path: path.unwrap_or_default(),
        format,
        encrypt,
        mode,
        owner: reader.user("owner"),
        group: reader.group("group"),
        on_expiry: reader.choice("on_expiry", &on_expiry).unwrap_or(OnExpiry::Keep),
        on_missing,
        shared_folder,
        required: reader.flag("required", true),
    };
    reader.finish();
    let origin = token.map_or(SinkOrigin::Session(session), SinkOrigin::Identity);
    Sink { origin, options, derive }
}

/// Keys for the token of a session, which that of an identity excludes.
const IDENTITY_EXCLUDES: [&str; 4] = ["session", "format", "wrap_ttl", "derived_token"];

/// Reads `on_missing`: the reaction to a file that was deleted or changed from outside.
pub(super) fn on_missing(reader: &mut Reader<'_>) -> OnMissing {
    let keywords = [("restore", OnMissing::Restore), ("leave", OnMissing::Leave)];
    reader.choice("on_missing", &keywords).unwrap_or_default()
}

/// Reads `encrypt`: the reader's public key that the file is sealed for.
fn encrypt(reader: &mut Reader<'_>) -> Option<SinkEncryption> {
    let mut table = reader.table("encrypt")?;
    let meaning = "the file in which the reader leaves its public key, such as \"/run/web/key.json\"";
    let public_key_file = table.required("public_key_file", meaning);
    let public_key_file = public_key_file.and_then(|text| {
        let path = table.parse(&text, file_path)?;
        table.record_path(&text, &path, PathUse::Read);
        Some(path)
    });
    let public_key_file = public_key_file.unwrap_or_default();
    let derive_key = table.flag("derive_key", true);
    let aad = table.value("aad").unwrap_or_default();
    table.finish();
    Some(SinkEncryption { public_key_file, derive_key, aad })
}

/// Reads `derived_token` and `wrap_ttl`: a child of the session's token with fewer rights, or a wrapped token.
fn derive(reader: &mut Reader<'_>, sessions: &Sessions, session: &str) -> Option<DerivedTokenKind> {
    let second = Duration::from_secs(1);
    let day = Duration::from_hours(24);
    let wrap = reader.duration_if_given("wrap_ttl", 10 * second..=32 * day);
    let is_present = ["wrap_ttl", "derived_token"].map(|key| reader.locate(key).is_some());
    let derived = derived_token::read(reader, true);
    if is_present == [true, true] {
        reader.conflict("derived_token", "wrap_ttl", "a file holds one token");
    }
    for key in ["wrap_ttl", "derived_token"]
        .into_iter()
        .zip(is_present)
        .filter_map(|(key, is_present)| is_present.then_some(key))
    {
        sessions.reject_derived(reader, key, session);
    }
    wrap.map(DerivedTokenKind::Wrapped).or(derived.map(DerivedTokenKind::Child))
}

/// The path of a file.
pub(super) fn file_path(text: &str) -> Result<PathBuf, ValueError> {
    let path = values::path(text)?;
    if text.ends_with('/') || path.file_name().is_none() {
        return invalid("is a folder's path", "end it with the file's name");
    }
    Ok(path)
}

/// The sessions that outputs may name.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// All session names, including those with errors, and whether the token is wrapped.
    wrapped: BTreeMap<String, bool>,
    /// Sessions at servers of kind `consul`.
    consul: BTreeSet<String>,
    /// State options of the sessions without errors.
    states: BTreeMap<String, Option<token_lifecycle::SessionStateOptions>>,
    /// Pairs already reported, as `KEY SESSION`.
    reported: RefCell<BTreeSet<String>>,
    /// Sessions whose server stores no secrets, with its kind.
    without_secrets: BTreeMap<String, ServerKind>,
    /// Sessions at HashiCorp Vault.
    vault: BTreeSet<String>,
}

impl Sessions {
    pub(super) fn new(names: &[String], sessions: &[Session]) -> Self {
        let is_wrapped =
            |name: &String| sessions.iter().any(|session| session.name == *name && session.login.wrap_ttl.is_some());
        let consul = sessions.iter().filter(|session| session.upstream.kind == ServerKind::Consul);
        let consul = consul.map(|session| session.name.clone()).collect();
        let without = sessions.iter().map(|session| (session.name.clone(), session.upstream.kind));
        let without_secrets = without.filter(|(_, kind)| kind.is_consul_compatible()).collect();
        let vault = sessions.iter().filter(|session| session.upstream.kind == ServerKind::Vault);
        let vault = vault.map(|session| session.name.clone()).collect();
        let states = sessions.iter().map(|session| (session.name.clone(), session.lifecycle.state.clone())).collect();
        Self {
            wrapped: names.iter().map(|name| (name.clone(), is_wrapped(name))).collect(),
            consul,
            states,
            without_secrets,
            vault,
            reported: RefCell::default(),
        }
    }

    /// Returns the options to persist a session's secrets in `file` of the state folder, sealed with the session's key. Reports
    /// a missing setting at `requested_at`, the key that asks for it.
    pub(super) fn persist(
        &self,
        reader: &Reader<'_>,
        requested_at: (Location, &str),
        session: &str,
        file: &str,
    ) -> Option<PersistOptions> {
        let diagnostics = reader.scope.diagnostics;
        let (at, key) = requested_at;
        let is_missing_key = self.states.get(session)?.as_ref().is_none_or(|state| state.seal_key.is_none());
        if is_missing_key && !self.reported.borrow_mut().insert(format!("{key} {session}")) {
            return None;
        }
        let Some(state) = self.states.get(session)? else {
            let message = "needs a state folder";
            diagnostics.missing_on_host(
                at,
                key,
                message,
                format!("create {STATE_DIR}, or set agent.state_dir to another folder"),
            );
            return None;
        };
        let Some(seal) = state.seal_key.clone() else {
            let message = format!("needs a seal_key_file in session {session}, whose key seals the file");
            diagnostics.missing(at, key, message, "set one (openssl rand -hex 32), or leave persist out");
            return None;
        };
        Some(PersistOptions { file: state.file.with_file_name(file), seal })
    }

    /// Returns true if the server of a session may have events, as `key` wants them. Warns of one that has none.
    pub(super) fn has_events(&self, reader: &Reader<'_>, (at, key): (Location, &str), session: &str) -> bool {
        let is_known = self.states.contains_key(session) && self.kind_without_secrets(session).is_none();
        if is_known && !self.vault.contains(session) && self.reported.borrow_mut().insert(format!("{key} {session}")) {
            let message = format!("has no effect for session {session}: OpenBao has no events");
            let advice = "set version_interval, with which changed secrets are found there";
            reader.scope.diagnostics.warning(at, key, (ErrorCode::SettingIgnored, message), advice);
        }
        self.vault.contains(session)
    }

    /// Records an error if no token can be derived from the token of `session`, as `key` asks for.
    pub(super) fn reject_derived(&self, reader: &mut Reader<'_>, key: &'static str, session: &str) {
        if self.is_wrapped(session) {
            reader.conflict(key, "the wrap_ttl of its session", "no token can be derived from a wrapped token");
        } else if let Some(kind) = self.kind_without_secrets(session) {
            let kind = if kind == ServerKind::Consul { "consul" } else { "keyward" };
            reader.conflict(key, &format!("a server of the kind {kind}"), "it has no derived tokens");
        }
    }

    /// Returns the kind of a session's server if it stores no secrets.
    pub(super) fn kind_without_secrets(&self, session: &str) -> Option<ServerKind> {
        self.without_secrets.get(session).copied()
    }

    fn is_consul(&self, name: &str) -> bool {
        self.consul.contains(name)
    }

    pub(super) fn is_wrapped(&self, name: &str) -> bool {
        self.wrapped.get(name).copied().unwrap_or(false)
    }

    /// The names of all sessions.
    pub(super) fn all(&self) -> Vec<String> {
        self.wrapped.keys().cloned().collect()
    }

    /// The names of the sessions whose token is not wrapped.
    pub(super) fn plain(&self) -> Vec<String> {
        self.wrapped.iter().filter(|(_, wrapped)| !**wrapped).map(|(name, _)| name.clone()).collect()
    }

    /// Returns the session that `session` names, or the only one if the key is absent.
    pub(super) fn one_of(&self, reader: &mut Reader<'_>) -> Option<String> {
        if reader.locate("session").is_none() {
            let names: Vec<_> = self.wrapped.keys().cloned().collect();
            match names.as_slice() {
                [only] => return Some(only.clone()),
                [] => reader.missing("session", "define one with [session.NAME]; a single one need not be named"),
                names => reader.missing("session", &format!("name one of {}", names.join(", "))),
            }
        }
        let text = reader.text("session")?;
        self.exists(reader, &text).then_some(text.value)
    }

    /// Returns true if a session of this name exists, else records an error.
    pub(super) fn exists(&self, reader: &Reader<'_>, text: &super::references::Text) -> bool {
        let exists = self.wrapped.contains_key(&text.value);
        if !exists && !text.unknown {
            let names: Vec<_> = self.wrapped.keys().map(String::as_str).collect();
            let advice = did_you_mean(&text.value, &names).unwrap_or_else(|| match names.as_slice() {
                [] => "define it with [session.NAME]".to_owned(),
                names => format!("there are: {}", names.join(", ")),
            });
            let message = (ErrorCode::UnknownName, format!("there is no session {}", quote(&text.value)));
            reader.scope.diagnostics.missing(text.at, &text.key, message, advice);
        }
        exists
    }
}
