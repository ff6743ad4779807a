//! The configuration of keyward in a pod, and its check.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use keyward_config::kubernetes::IDENTITY_FOLDER;
use keyward_config::{Diagnostic, Environment, Purpose, TomlText, load_text};

use super::options::{InjectorOptions, LoginMethod};
use super::placement::{Life, Placement};
use super::problems::Problems;
use super::request::InjectionRequest;
use super::sidecar::CONFIG_FOLDER;

/// The configuration of keyward in a pod.
#[derive(Debug)]
pub(crate) struct PodConfig {
    pub(crate) toml: String,
    /// Annotations that templates come from, by the name of the template in the configuration.
    annotations: BTreeMap<String, String>,
}

/// Largest configuration in bytes: a variable of a process has at most 128 KiB.
const MAX_CONFIG: usize = 100 * 1024;

impl PodConfig {
    /// Writes the configuration of a request. `has_ca` is true if the pod gets the operator's CA bundle.
    pub(crate) fn new(request: &InjectionRequest, options: &InjectorOptions, has_ca: bool) -> Self {
        let mut toml = TomlText::new("Written by keyward's injector from the annotations of the pod.");
        write_login(request, options, has_ca, &mut toml);
        let InjectionRequest { outputs, placement, .. } = request;
        if let Some(path) = &outputs.token {
            toml.section("", "sink.token")
                .text("path", path)
                .comment("All containers of the pod may write there.")
                .flag("shared_folder", true)
                .text("mode", default_mode(placement))
                .text("on_expiry", "remove");
        }
        if let Some(interval) = &request.interval {
            toml.section("", "templates").text("interval", interval);
        }
        let mut annotations = BTreeMap::new();
        let mut names = BTreeSet::new();
        for file in &outputs.files {
            let name = table_name(&file.destination, &mut names);
            toml.section("", &format!("template.{name}"))
                .verbatim("contents", &file.template)
                .text("destination", &file.destination)
                .text("mode", file.mode.as_deref().unwrap_or(default_mode(placement)))
                .flag("create_folders", true)
                .optional("left_delimiter", file.left_delimiter.as_ref())
                .optional("right_delimiter", file.right_delimiter.as_ref());
            if !file.error_on_missing_key {
                toml.flag("error_on_missing_key", false);
            }
            annotations.insert(name, file.annotation.clone());
        }
        if let Life::Sidecar { .. } = placement.life {
            let port = placement.health_port;
            toml.section("The kubelet's probes, and metrics.", "listener.probes")
                .text("kind", "health")
                .text("address", &format!("tcp://0.0.0.0:{port}"));
            toml.section("For `keyward status` in this container; no other one has the folder.", "listener.status")
                .text("address", &format!("unix://{CONFIG_FOLDER}/keyward.sock"))
                .text("mode", "0600");
        }
        toml.section("", "log").text("level", &request.log_level).text("format", request.log_format);
        Self { toml: toml.finish(), annotations }
    }

    /// Reads the configuration as keyward in the pod will, and reports each error with the annotation that it comes from.
    pub(crate) fn check(&self, request: &InjectionRequest, problems: &mut Problems) {
        if self.toml.len() > MAX_CONFIG {
            let size = self.toml.len();
            problems.add(format!(
                "the annotations make a configuration of {size} bytes; at most {MAX_CONFIG} fit into a pod"
            ));
            return;
        }
        let variables =
            request.login.identity.variables().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let user = u32::try_from(request.placement.user).unwrap_or_default();
        let environment = Environment { variables, user };
        for error in load_text(Path::new("keyward.toml"), &self.toml, &environment, Purpose::Check).errors {
            problems.add(self.describe(&error));
        }
    }

    fn describe(&self, error: &Diagnostic) -> String {
        let advice = if error.advice.is_empty() { String::new() } else { format!("; {}", error.advice) };
        let template = error.key.strip_prefix("template.").and_then(|key| key.split('.').next());
        match template.and_then(|name| self.annotations.get(name)) {
            Some(annotation) => format!("annotation {annotation}: {}{advice}", error.message),
            None => format!("{}: {}{advice}", error.key, error.message),
        }
    }
}

/// Writes the server and the session.
fn write_login(request: &InjectionRequest, options: &InjectorOptions, has_ca: bool, toml: &mut TomlText) {
    let (server, login) = (&options.server, &request.login);
    toml.section("", "server.main").text("kind", &server.kind).text("address", &login.address);
    // The operator's CA and name are those of the operator's server.
    if login.address == server.address.trim_end_matches('/') || login.address == server.address {
        toml.optional("server_name", server.server_name.as_ref());
    }
    if has_ca {
        toml.text("ca_file", &format!("{CONFIG_FOLDER}/ca.pem"));
    }
    if server.allow_http {
        toml.flag("allow_http", true);
    }
    toml.section("", "session.main").text("mount", &login.mount).optional("namespace", login.namespace.as_ref());
    if request.revokes {
        toml.flag("revoke_on_exit", true);
    }
    let section = if login.method == LoginMethod::Azure { "cloud" } else { login.method.name() };
    toml.section("", &format!("session.main.{section}")).text("role", &login.role);
    if login.method == LoginMethod::Azure {
        toml.text("resource", &server.azure_resource).flag("authenticate_from_environment", true);
    } else {
        toml.text("file", &format!("{IDENTITY_FOLDER}/token"));
    }
}

/// Mode of files for which no annotation sets one. Without a group that all containers are in, others must be able to read them: only
/// the containers that have the volume see it.
fn default_mode(placement: &Placement) -> &'static str {
    if placement.has_shared_group { "0640" } else { "0644" }
}

/// Returns a name for the table of a template, from the name of its file.
fn table_name(destination: &str, names: &mut BTreeSet<String>) -> String {
    let file = destination.rsplit('/').next().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' };
    let base: String = file.chars().map(plain).take(50).collect();
    let numbered = (1_u32..).map(|number| if number == 1 { base.clone() } else { format!("{base}_{number}") });
    let name = numbered.into_iter().find(|name| !names.contains(name)).unwrap_or_default();
    names.insert(name.clone());
    name
}
