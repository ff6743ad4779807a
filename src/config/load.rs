//! Files -> tree -> sections -> configuration.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};

use keyward_agent::identity_tokens::IdentityTokenOptions;
use keyward_agent::process::ProcessOptions;
use keyward_agent::server_client::ServerKind;
#[cfg(feature = "gateway")]
use keyward_gateway::client_setup::{ProxyExceptions, UserConfigFiles};
use keyward_http::client::ServerAddress;
use keyward_http::server::Endpoint;
use keyward_telemetry::error_code::ErrorCode;
use url::Host;

#[cfg(feature = "acl")]
use super::acl;
use super::agent::STATE_DIR;
use super::diagnostic::{Diagnostics, Location, Severity};
use super::files::read_files;
#[cfg(feature = "gateway")]
use super::gateway;
use super::reader::Reader;
use super::references::{ReadContext, Text};
use super::sink::Sessions;
use super::tool_variables::tool_variables;
use super::tree::{self, Table, join};
#[cfg(any(feature = "acl", feature = "gateway"))]
use super::tree::{Entry, Value};
use super::{
    Agent, Certificate, Config, Environment, Listener, LoadOutcome, Log, NeedKind, PathUse, Purpose, Serves, Sink,
    SinkOrigin,
};
use super::{
    agent, audit, caller, certificate, credential, identity, listener, process, server, session, sink, template,
};

/// Reads configuration files, and folders of `*.toml` files in name order, as one.
pub fn load(paths: &[PathBuf], environment: &Environment, purpose: Purpose) -> LoadOutcome {
    let mut diagnostics = Diagnostics::new(purpose);
    if paths.is_empty() {
        let none = diagnostics.file(Path::new("(no file)"));
        diagnostics.unreadable(none, "", "no configuration file is given", "name a file or a folder");
    }
    let tree = read_files(paths, environment, &mut diagnostics);
    validate(&diagnostics, environment, &tree)
}

/// Reads a string as if it were a file of that name.
pub fn load_text(name: &Path, text: &str, environment: &Environment, purpose: Purpose) -> LoadOutcome {
    let mut diagnostics = Diagnostics::new(purpose);
    let at = diagnostics.file(name);
    let tree = tree::parse(text, at, &mut diagnostics);
    validate(&diagnostics, environment, &tree)
}

/// Reads one section from a command line: its settings by name, with the values of each. Errors name `the command line` as
/// their file.
#[cfg(any(feature = "acl", feature = "gateway"))]
pub fn load_section(section: &str, settings: &[(&str, Vec<String>)], environment: &Environment) -> LoadOutcome {
    let mut diagnostics = Diagnostics::new(Purpose::Run);
    let at = diagnostics.file(Path::new("the command line"));
    let entry = |value| Entry { key: at, at, value };
    let value = |texts: &Vec<String>| match texts.as_slice() {
        [text] => Value::Text(text.clone()),
        many => Value::List(many.iter().map(|text| (at, Value::Text(text.clone()))).collect()),
    };
    let table = settings.iter().map(|(name, texts)| ((*name).to_owned(), entry(value(texts))));
    let tree = [(section.to_owned(), entry(Value::Table(table.collect())))].into();
    validate(&diagnostics, environment, &tree)
}

fn validate(diagnostics: &Diagnostics, environment: &Environment, tree: &Table) -> LoadOutcome {
    let scope = ReadContext {
        diagnostics,
        environment,
        references: RefCell::default(),
        expanded: Cell::default(),
        needs: RefCell::default(),
    };
    let mut listeners = Vec::new();
    let config = read(Reader::new(&scope, Location { file: 0, position: None }, tree), &mut listeners);
    let references = scope.references.take();
    let errors = diagnostics.all(Severity::Error);
    LoadOutcome {
        config: config.filter(|_| errors.is_empty()),
        errors,
        warnings: diagnostics.all(Severity::Warning),
        notes: diagnostics.all(Severity::Note),
        listeners,
        placeholders: diagnostics.placeholders(),
        needs: scope.needs.take(),
        files: diagnostics.files(),
        references,
    }
}

/// Reads all sections. `valid_listeners` takes the listeners that could be read, also where another section has errors.
fn read(mut top: Reader<'_>, valid_listeners: &mut Vec<Listener>) -> Option<Config> {
    let mut table = top.table("agent");
    let is_state_dir_set = table.as_mut().is_some_and(|table| table.locate("state_dir").is_some());
    let agent = table.map_or_else(Agent::default, agent::read);
    let log = top.table("log").map_or_else(Log::default, agent::read_log);
    let tables = top.tables("server");
    let server_locations = locations(&tables);
    let servers: Vec<_> = tables.into_iter().map(|(name, table)| server::read(name, table)).collect();
    let tables = top.tables("session");
    let session_locations = locations(&tables);
    let names: Vec<_> = session_locations.iter().map(|(name, _)| name.clone()).collect();
    if agent.state_dir.is_none() && !is_state_dir_set && !names.is_empty() {
        let message = format!("{STATE_DIR} does not exist, and without it no session survives a restart");
        top.scope.diagnostics.optional_on_host(top.at, "agent.state_dir", message, "create it, or set another folder");
    }
    if let (Some(folder), false) = (&agent.state_dir, is_state_dir_set) {
        top.record("agent.state_dir".to_owned(), NeedKind::Path(folder.clone(), PathUse::WriteFolder));
    }
    let state_dir = agent.state_dir.as_deref();
    let shared = top.table("templates").map(template::read_shared).unwrap_or_default();
    // Sessions may log in with these.
    let (svids, engine_certificates) = certificate::sort(top.tables("certificate"));
    let svids: Vec<_> =
        svids.into_iter().map(|(name, table)| certificate::read_svid(name, table, shared.command_debounce)).collect();
    let identities: Vec<_> = svids.iter().map(|(certificate, ..)| certificate).collect();
    let read = |(name, table)| session::read(name, table, (&servers, &identities), state_dir);
    let sessions: Vec<_> = tables.into_iter().map(read).collect();
    let valid_sessions: Vec<_> = sessions.iter().flatten().cloned().collect();
    let all_sessions = Sessions::new(&names, &valid_sessions);
    let identity_tables = top.tables("identity");
    let identity_locations = locations(&identity_tables);
    let (identities, identity_names) = identity::read_all(identity_tables);
    let sinks = sink::read_all(top.tables("sink"), &all_sessions, &identity_names);
    let context = template::TemplateContext { sessions: &all_sessions, sinks: &sinks, certificates: &[], shared };
    let templates = template::read_files(top.tables("template"), context);
    let env_templates = template::read_variables(top.tables("env_template"), context, &templates);
    let certificates = certificate::read_all(engine_certificates, svids, context, &templates, top.scope.diagnostics);
    let (mut process, process_identity) = top.table("process").map(process::read).unzip();
    let tables = top.tables("listener");
    let listener_locations = locations(&tables);
    let callers = caller::read_all(top.tables("caller"), &all_sessions, &identity_names);
    let context = template::TemplateContext { certificates: &certificates, ..context };
    let listener_context =
        listener::ListenerContext { templates: context, identities: &identity_names, has_callers: !callers.is_empty() };
    let mut listeners = listener::read_all(tables, listener_context);
    if let (Some(name), Some(Some(process))) = (process_identity.flatten(), &mut process) {
        let outputs = (listeners.as_slice(), sinks.as_slice());
        add_tool_variables(process, &name, (&identity_names, &identities), outputs, top.scope.diagnostics);
    }
    let credentials = credential::read_all(top.tables("credential"), &all_sessions);
    let callers = caller::attach(callers, &mut listeners, &credentials, top.scope.diagnostics);
    valid_listeners.clone_from(&listeners);
    let audit = audit::read_all(top.tables("audit"));
    #[cfg(feature = "acl")]
    let acl = top.table("acl").map(|table| acl::read(table, &certificates));
    #[cfg(not(feature = "acl"))]
    refuse(&mut top, "acl");
    #[cfg(feature = "gateway")]
    let gateway = top.table("gateway").map(|table| {
        let config_home = top.scope.environment.variables.get("XDG_CONFIG_HOME").map(PathBuf::from);
        let process = process.as_ref().and_then(Option::as_ref);
        let reads = process.map(|process| {
            let files = UserConfigFiles::new(&process.variables, &process.command, config_home);
            (files, ProxyExceptions::new(&process.variables))
        });
        gateway::read(table, &all_sessions, state_dir, reads)
    });
    #[cfg(not(feature = "gateway"))]
    refuse(&mut top, "gateway");
    let sections = ["session", "identity", "acl", "gateway"];
    let has_svids = certificates.iter().any(|certificate| certificate.engine().is_none());
    if names.is_empty() && !has_svids && sections.into_iter().all(|part| top.locate(part).is_none()) {
        let advice = "write [session.NAME] with [session.NAME.cloud], and the server that it logs in to";
        top.scope.diagnostics.missing(top.at, "", "no session: there is nothing to do", advice);
    }
    let diagnostics = top.scope.diagnostics;
    top.finish();
    let sessions = sessions.into_iter().collect::<Option<_>>()?;
    // An omitted section is not an error; a section that could not be read fails the whole configuration.
    let config = Config {
        sessions,
        sinks,
        templates,
        env_templates,
        certificates,
        process: process.map_or(Some(None), |process| process.map(Some))?,
        listeners,
        credentials,
        identities: identities.into_iter().collect::<Option<_>>()?,
        callers,
        audit,
        #[cfg(feature = "acl")]
        acl: acl.map_or(Some(None), |acl| acl.map(Some))?,
        #[cfg(feature = "gateway")]
        gateway: gateway.map_or(Some(None), |gateway| gateway.map(Some))?,
        log,
        agent,
    };
    warn_of_unused(diagnostics, &config, &server_locations, &session_locations);
    warn_of_unused_identities(diagnostics, &config, &identity_locations);
    check_api_proxies(diagnostics, &config, &listener_locations);
    Some(config)
}

/// Names of tables, and where they stand.
type NamedTables = Vec<(String, Location)>;

fn locations(tables: &[(String, Reader<'_>)]) -> NamedTables {
    tables.iter().map(|(name, table)| (name.clone(), table.at)).collect()
}

/// A section of a part that this build lacks is not an unknown key.
#[cfg(not(all(feature = "acl", feature = "gateway")))]
fn refuse(top: &mut Reader<'_>, part: &'static str) {
    if let Some(at) = top.locate(part) {
        let advice = format!("leave [{part}] out, or use a build that has it");
        top.scope.diagnostics.error(at, part, format!("this build has no {part} part"), advice);
    }
}

/// Reports listeners that would forward requests to themselves, or cache responses that must not be cached.
fn check_api_proxies(diagnostics: &Diagnostics, config: &Config, listeners: &NamedTables) {
    for listener in config.listeners.iter().filter(|listener| matches!(listener.serves, Serves::ApiProxy(_))) {
        let session = config.sessions.iter().find(|session| listener.sessions.contains(&session.name));
        let at = listeners.iter().find(|(name, _)| *name == listener.name).map(|(_, at)| *at);
        if let (Serves::ApiProxy(options), Some(session), Some(at)) = (&listener.serves, session, at)
            && options.cache.is_some()
            && let kind @ (ServerKind::Keyward | ServerKind::Consul) = session.upstream.kind
        {
            let kind = server::kind(kind);
            let message = format!("not allowed, as session {} has a server of kind \"{kind}\"", session.name);
            let key = format!("listener.{}.cache", listener.name);
            diagnostics.error(at, &key, message, "leave it out: its responses are never cached");
        }
        if let (Some(session), Some(at)) = (session, at)
            && is_at(&session.upstream.client.address, &listener.endpoint)
        {
            let message =
                format!("the address of session {}'s server: the listener would forward to itself", session.name);
            let key = format!("listener.{}.address", listener.name);
            diagnostics.error(at, &key, message, "listen on another address, or set the real address of the server");
        }
    }
}

fn is_at(server: &ServerAddress, endpoint: &Endpoint) -> bool {
    match (server, endpoint) {
        (ServerAddress::Unix(path), Endpoint::Unix(socket)) => *path == socket.path,
        (ServerAddress::Url(url), Endpoint::Tcp(listens)) => {
            let same_host = match url.host() {
                Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
                Some(Host::Ipv4(address)) => address == listens.ip(),
                Some(Host::Ipv6(address)) => address == listens.ip(),
                None => false,
            };
            same_host && listens.port() != 0 && url.port_or_known_default() == Some(listens.port())
        }
        _ => false,
    }
}

/// Warns of servers and sessions that nothing uses.
fn warn_of_unused(diagnostics: &Diagnostics, config: &Config, servers: &NamedTables, sessions: &NamedTables) {
    for (name, at) in servers {
        if !config.sessions.iter().any(|session| session.upstream.name == *name) {
            diagnostics.warning(
                *at,
                &join("server", name),
                (ErrorCode::UnusedSection, "no session uses this server"),
                "leave it out, or name it in a session",
            );
        }
    }
    for (name, at) in sessions {
        let serves = |listener: &Listener| listener.serves.uses_tokens() && listener.sessions.contains(name);
        let is_used =
            config.sinks.iter().any(|sink| sink.session() == Some(name)) || config.listeners.iter().any(serves);
        #[cfg(feature = "gateway")]
        let is_used = is_used || config.gateway.as_ref().is_some_and(|gateway| gateway.token.session() == Some(name));
        let is_used =
            is_used || config.certificates.iter().filter_map(Certificate::engine).any(|engine| engine.session == *name);
        let mut templates = config.templates.iter().chain(&config.env_templates);
        if !is_used && !templates.any(|template| template.session == *name) {
            let message = (ErrorCode::UnusedSection, "no sink, listener, template or certificate uses this session");
            diagnostics.warning(*at, &join("session", name), message, "add a [sink.NAME] or a [listener.NAME]");
        }
    }
}

/// Warns of identities that nothing uses.
fn warn_of_unused_identities(diagnostics: &Diagnostics, config: &Config, identities: &NamedTables) {
    for (name, at) in identities {
        let serves = |listener: &Listener| matches!(&listener.serves, Serves::Identity(all) if all.contains(name));
        let writes = |sink: &Sink| matches!(&sink.origin, SinkOrigin::Identity(token) if token.identity == *name);
        if !config.listeners.iter().any(serves) && !config.sinks.iter().any(writes) {
            let message = (ErrorCode::UnusedSection, "no listener or sink uses this identity");
            let advice = "add a [listener.NAME] with kind = \"identity\", or a [sink.NAME] with identity";
            diagnostics.warning(*at, &join("identity", name), message, advice);
        }
    }
}

/// Gives the child process the variables of the identity that its section names.
fn add_tool_variables(
    process: &mut ProcessOptions,
    name: &Text,
    (names, identities): (&identity::Identities, &[Option<IdentityTokenOptions>]),
    (listeners, sinks): (&[Listener], &[Sink]),
    diagnostics: &Diagnostics,
) {
    if !names.exists(diagnostics, name) {
        return;
    }
    // One that could not be read has its own error.
    let Some(identity) = identities.iter().flatten().find(|identity| identity.name == name.value) else { return };
    match tool_variables(identity, listeners, sinks) {
        Ok(variables) => process.variables = std::mem::take(&mut process.variables).merged_with(&variables),
        Err(reason) => {
            let advice = "add a [listener.NAME] with kind = \"identity\" on 127.0.0.1, or a [sink.NAME] with identity";
            diagnostics.error(name.at, &name.key, reason, advice);
        }
    }
}
