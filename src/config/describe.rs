//! Description of a configuration for `keyward check`: logins, outputs and permitted callers, in sentences.
//!
//! A value from a variable or a file is printed as its reference, since it may be a secret.

use std::collections::BTreeMap;

use keyward_agent::callers::CallerPolicy;
use keyward_agent::identity::IdentityMethod;
use keyward_agent::secrets::DerivedTokenKind;
use keyward_agent::server_client::ServerKind;
use keyward_agent::sinks::{OnExpiry, SinkFormat};
use keyward_http::client::{ProxyMode, ServerAddress};
use keyward_http::guard::AccessMode;
use keyward_http::server::Endpoint;
use keyward_telemetry::time_format::format_duration;

#[cfg(feature = "acl")]
use super::acl;
use super::api_proxy;
#[cfg(feature = "gateway")]
use super::gateway;
use super::method;
use super::server_certificate;
use super::values::describe_owner;
use super::{
    Agent, Certificate, Config, Diagnostic, Listener, LoadOutcome, Log, Serves, Session, Sink, SinkOrigin, Template,
};
use super::{
    agent, audit, caller, certificate, credential, derived_token, identity, process, server, systemd_credentials,
    template,
};

/// Result of `keyward check` as JSON.
#[derive(Debug, serde::Serialize)]
pub struct CheckReport {
    /// True if there are no errors.
    pub(crate) ok: bool,
    /// Errors: the configuration cannot run.
    pub(crate) errors: Vec<Diagnostic>,
    /// Warnings: allowed, but probably unintended.
    pub(crate) warnings: Vec<Diagnostic>,
    /// Notes: files, users or variables that this machine lacks.
    pub(crate) notes: Vec<Diagnostic>,
    /// Description of the configuration; `None` if there are errors.
    pub(crate) does: Option<Description>,
}

impl LoadOutcome {
    /// Describes the configuration; `None` if there are errors.
    pub fn description(&self) -> Option<Description> {
        self.config.as_ref().map(|config| Description::new(config, &self.references))
    }

    /// Builds the result for JSON output.
    pub fn report(&self) -> CheckReport {
        CheckReport {
            ok: self.errors.is_empty(),
            errors: self.errors.clone(),
            warnings: self.warnings.clone(),
            notes: self.notes.clone(),
            does: self.description(),
        }
    }
}

/// Description of a configuration. Displays each part's clauses on lines of their own.
#[derive(Debug, PartialEq, Eq, serde::Serialize)]
pub struct Description {
    /// Sessions, sinks, listeners, and the agent itself.
    pub(crate) parts: Vec<PartDescription>,
}

/// Description of one part.
#[derive(Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct PartDescription {
    /// `session`, `sink`, `template`, `env_template`, `certificate`, `process`, `listener`, `credential`, `identity`, `caller`, `audit`,
    /// `acl`, `gateway` or `agent`.
    pub part: &'static str,
    /// The section's name; empty for parts without one.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: String,
    /// Clauses, such as `serves the local API on unix:///run/keyward/api.sock`.
    pub does: Vec<String>,
}

impl std::fmt::Display for Description {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for PartDescription { part, name, does } in &self.parts {
            writeln!(f, "{}", if name.is_empty() { (*part).to_owned() } else { format!("{part} {name}") })?;
            for clause in does {
                writeln!(f, "  {clause}")?;
            }
        }
        Ok(())
    }
}

impl Description {
    /// Describes a configuration; `references` maps keys to the references that replace their values.
    pub(crate) fn new(config: &Config, references: &BTreeMap<String, String>) -> Self {
        let describer = Describer { references };
        let sessions = config.sessions.iter().map(|session| describer.session(session));
        let sinks = config.sinks.iter().map(|sink| describer.sink(sink));
        let templates = config.templates.iter().map(|template| describer.template("template", template));
        let variables = config.env_templates.iter().map(|template| describer.template("env_template", template));
        let process = config.process.iter().map(|process| PartDescription {
            part: "process",
            name: String::new(),
            does: process::describe(process),
        });
        let certificates = config.certificates.iter().map(|certificate| describer.certificate(certificate));
        let rendered = templates.chain(variables).chain(certificates).chain(process);
        let listeners = config.listeners.iter().map(|listener| describer.listener(listener));
        let rules = config.callers.iter().flat_map(CallerPolicy::rules);
        let callers =
            rules.map(|rule| PartDescription { part: "caller", name: rule.name.clone(), does: caller::describe(rule) });
        let credentials = config.credentials.iter();
        let credentials = credentials.map(|credential| PartDescription {
            part: "credential",
            name: credential.name.clone(),
            does: credential::describe(credential),
        });
        let identities = config.identities.iter().map(|identity| PartDescription {
            part: "identity",
            name: identity.name.clone(),
            does: identity::describe(identity, references),
        });
        let audit = config.audit.iter().map(|device| PartDescription {
            part: "audit",
            name: device.name.clone(),
            does: audit::describe(device),
        });
        let agent = describer.agent(&config.agent, &config.log);
        #[cfg(feature = "acl")]
        let acl =
            config.acl.iter().map(|acl| PartDescription { part: "acl", name: String::new(), does: acl::describe(acl) });
        #[cfg(not(feature = "acl"))]
        let acl = std::iter::empty();
        #[cfg(feature = "gateway")]
        let gateway = config.gateway.iter().map(|gateway| PartDescription {
            part: "gateway",
            name: String::new(),
            does: gateway::describe_gateway(gateway, references),
        });
        #[cfg(not(feature = "gateway"))]
        let gateway = std::iter::empty();
        let services = acl.chain(gateway);
        Self {
            parts: sessions
                .chain(sinks)
                .chain(rendered)
                .chain(listeners)
                .chain(credentials)
                .chain(identities)
                .chain(callers)
                .chain(audit)
                .chain(services)
                .chain([agent])
                .collect(),
        }
    }
}

struct Describer<'a> {
    references: &'a BTreeMap<String, String>,
}

impl Describer<'_> {
    fn describe_setting(&self, key: &str, value: &str) -> String {
        self.references.get(key).map_or(value, String::as_str).to_owned()
    }

    fn session(&self, session: &Session) -> PartDescription {
        let login = &session.login;
        let upstream = &session.upstream;
        let life = &session.lifecycle;
        let mut does = vec![self.login(session)];
        does.extend(self.describe_route(&upstream.name, &upstream.client.proxy));
        does.extend(method::describe(session, self.references));
        if !life.login_jitter.is_zero() {
            does.push(format!("waits up to {} before the first login", format_duration(life.login_jitter)));
        }
        if let Some(ttl) = login.wrap_ttl {
            does.push(format!("passes on a wrapped token that can be unwrapped once, within {}", format_duration(ttl)));
            return PartDescription { part: "session", name: session.name.clone(), does };
        }
        does.push(match life.check_interval {
            Some(interval) => format!("checks the token every {}", format_duration(interval)),
            None => "does not check the token between renewals".to_owned(),
        });
        does.extend(
            life.state
                .as_ref()
                .filter(|state| state.seal_key.is_some())
                .map(|state| format!("keeps the token across restarts, encrypted in {}", state.file.display())),
        );
        let end = match (life.revoke_on_exit, upstream.kind) {
            (true, ServerKind::Consul) => "logs out",
            (true, _) => "revokes the token",
            (false, _) => "does not revoke the token",
        };
        does.push(format!("{end} when the agent stops"));
        PartDescription { part: "session", name: session.name.clone(), does }
    }

    fn login(&self, session: &Session) -> String {
        let key = |key: &str| format!("session.{}.{key}", session.name);
        let login = &session.login;
        let upstream = &session.upstream;
        let at = format!(
            "the {} server {} at {}",
            server::kind(upstream.kind),
            upstream.name,
            self.server_address(&upstream.name, &upstream.client.address),
        );
        let namespace = login.namespace.as_ref();
        let namespace = namespace.map_or(String::new(), |namespace| {
            format!(", in namespace {}", self.describe_setting(&key("namespace"), namespace))
        });
        if upstream.kind == ServerKind::Consul {
            let method = self.describe_setting(&key("auth_method"), &login.mount);
            return format!("logs in to {at}, by its auth method {method}{namespace}");
        }
        if matches!(session.identity, IdentityMethod::TokenFile(_)) {
            return format!("uses an existing token at {at}{namespace}");
        }
        let role = match login.role.as_str() {
            "" => String::new(),
            role => format!(", as role {}", method::reference_or_value(session, "role", role, self.references)),
        };
        format!("logs in to {at}{role} by auth/{}{namespace}", self.describe_setting(&key("mount"), &login.mount))
    }

    fn server_address(&self, name: &str, address: &ServerAddress) -> String {
        let written = match address {
            ServerAddress::Url(url) => url.as_str().trim_end_matches('/').to_owned(),
            ServerAddress::Unix(path) => format!("unix://{}", path.display()),
        };
        self.describe_setting(&format!("server.{name}.address"), &written)
    }

    fn describe_route(&self, server: &str, proxy: &ProxyMode) -> Option<String> {
        match proxy {
            ProxyMode::Environment => None,
            ProxyMode::Direct => Some("connects directly, without a proxy".to_owned()),
            ProxyMode::Through(url) => {
                let host =
                    format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(80));
                Some(format!(
                    "connects through the proxy {}",
                    self.describe_setting(&format!("server.{server}.proxy"), &host)
                ))
            }
        }
    }

    fn sink(&self, sink: &Sink) -> PartDescription {
        let options = &sink.options;
        let format = match options.format {
            SinkFormat::Raw => "as plain text",
            SinkFormat::Json => "as JSON",
            SinkFormat::Env(_) => "as a variable of an environment",
        };
        let path = options.path.display().to_string();
        let token = match &sink.origin {
            SinkOrigin::Session(session) if sink.derive.is_some() => {
                format!("a token derived from that of session {session}")
            }
            SinkOrigin::Session(session) => format!("the token of session {session}"),
            SinkOrigin::Identity(token) => format!("the token of identity {} for {}", token.identity, token.resource),
        };
        let mut does = vec![format!(
            "writes {token} {format} to {}, mode {:04o}{}",
            self.describe_setting(&format!("sink.{}.path", options.name), &path),
            options.mode,
            describe_owner(options.owner, options.group),
        )];
        does.extend(sink.derive.as_ref().map(|derive| match derive {
            DerivedTokenKind::Wrapped(ttl) => format!("it is the token, wrapped for {}", format_duration(*ttl)),
            DerivedTokenKind::Child(child) => format!("it is a child of the token {}", derived_token::describe(child)),
        }));
        does.extend(options.encrypt.as_ref().map(|encrypt| {
            let path = encrypt.public_key_file.display().to_string();
            let path = self.describe_setting(&format!("sink.{}.encrypt.public_key_file", options.name), &path);
            let derived = if encrypt.derive_key { "" } else { ", without key derivation" };
            format!("encrypts it for the reader with the public key in {path}{derived}")
        }));
        does.push(match options.on_expiry {
            OnExpiry::Keep => "keeps the file when the token has expired".to_owned(),
            OnExpiry::Truncate => "empties the file when the token has expired".to_owned(),
            OnExpiry::Remove => "removes the file when the token has expired".to_owned(),
        });
        if !options.required {
            does.push("is not required for readiness".to_owned());
        }
        PartDescription { part: "sink", name: options.name.clone(), does }
    }

    fn template(&self, part: &'static str, template: &Template) -> PartDescription {
        let name = template.options.text.name.clone();
        let does =
            template::describe(template, |key, value| self.describe_setting(&format!("{part}.{name}.{key}"), value));
        PartDescription { part, name, does }
    }

    fn certificate(&self, certificate: &Certificate) -> PartDescription {
        let name = certificate.options.name.clone();
        let describe = |key: &str, value: &str| self.describe_setting(&format!("certificate.{name}.{key}"), value);
        let does = certificate::describe(certificate, describe);
        PartDescription { part: "certificate", name, does }
    }

    fn listener(&self, listener: &Listener) -> PartDescription {
        let address =
            self.describe_setting(&format!("listener.{}.address", listener.name), &listener.endpoint.to_string());
        let mode = match &listener.endpoint {
            Endpoint::Unix(socket) => format!(", mode {:04o}", socket.mode),
            _ => String::new(),
        };
        let mut does = Vec::new();
        if let Serves::SystemdCredentials(credentials) = &listener.serves {
            does.push(format!("serves credentials to systemd on {address}{mode}, only to root"));
            does.extend(systemd_credentials::describe(credentials));
            does.extend(
                listener
                    .derived_token
                    .as_ref()
                    .map(|child| format!("uses a child of a session's token {}", derived_token::describe(child))),
            );
        } else if listener.serves == Serves::Health {
            does.push(format!("serves health and metrics on {address}{mode}, to every caller"));
        } else {
            if let Serves::ApiProxy(options) = &listener.serves {
                let tls = server_certificate::describe(listener.tls.as_ref());
                does.push(format!("serves the API of the server on {address}{mode}{tls}"));
                does.extend(api_proxy::describe(options, &listener.sessions.join(", ")));
            } else if let Serves::Identity(identities) = &listener.serves {
                does.push(format!("serves identities to tools of clouds on {address}{mode}"));
                does.push(format!("serves tokens of {}", identities.join(", ")));
            } else if listener.serves.is_ui() {
                let tls = server_certificate::describe(listener.serves.ui_certificate());
                does.push(format!("serves pages for browsers on {address}{tls}"));
                does.push(format!("shows the sessions {}", listener.sessions.join(", ")));
            } else {
                does.push(format!("serves the local API on {address}{mode}"));
                does.push(match listener.sessions.as_slice() {
                    [] => "serves no token: no session is configured for it".to_owned(),
                    sessions => format!("serves the token of {}", sessions.join(", ")),
                });
            }
            does.extend(
                listener
                    .derived_token
                    .as_ref()
                    .map(|child| format!("uses a child of a session's token {}", derived_token::describe(child))),
            );
            does.push(match &listener.guard.admit {
                AccessMode::SocketPeers => {
                    "accepts root, the agent's user, and members of the socket's group".to_owned()
                }
                AccessMode::Key(_) => "accepts local callers that send the key".to_owned(),
                AccessMode::AnyLocalUser => "accepts every user of this machine".to_owned(),
                AccessMode::Callers => "accepts every local process that is a caller".to_owned(),
            });
            if listener.callers.is_some() {
                does.push("grants each [caller.NAME] its rights and refuses all other processes".to_owned());
            }
        }
        if !listener.required {
            does.push("is not required for readiness".to_owned());
        }
        PartDescription { part: "listener", name: listener.name.clone(), does }
    }

    fn agent(&self, agent: &Agent, log: &Log) -> PartDescription {
        let state = agent.state_dir.as_ref().map(|path| {
            format!("keeps its state in {}", self.describe_setting("agent.state_dir", &path.display().to_string()))
        });
        let state = state.unwrap_or_else(|| "keeps no state across restarts".to_owned());
        let does = std::iter::once(state).chain(agent::describe(agent, log)).collect();
        PartDescription { part: "agent", name: String::new(), does }
    }
}
