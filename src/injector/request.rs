//! The request of a pod: its annotations, read with the operator's settings.

use keyward_config::kubernetes::Identity;

use super::annotations::{INJECT, INJECTED, Key, VAULT_STATUS};
use super::given::{Given, GivenAnnotations};
use super::options::{InjectorOptions, LoginMethod, Setting};
use super::outputs::Outputs;
use super::placement::{Life, Placement};
use super::pod::Pod;
use super::problems::Problems;
use super::values;

/// Everything that is added to a pod.
#[derive(Debug)]
pub(crate) struct InjectionRequest {
    pub(crate) image: String,
    pub(crate) login: Login,
    pub(crate) outputs: Outputs,
    pub(crate) placement: Placement,
    pub(crate) resources: Resources,
    /// Interval at which secrets without a lease are read again.
    pub(crate) interval: Option<String>,
    pub(crate) log_level: String,
    pub(crate) log_format: &'static str,
    pub(crate) revokes: bool,
    /// The pod asks by annotations of the Vault Agent injector.
    pub(crate) is_vault: bool,
}

/// The server, and the login to it.
#[derive(Debug)]
pub(crate) struct Login {
    pub(crate) address: String,
    pub(crate) namespace: Option<String>,
    pub(crate) method: LoginMethod,
    pub(crate) mount: String,
    pub(crate) role: String,
    pub(crate) identity: Identity,
}

/// Resources of the container; `None` for none.
#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) limits: [(&'static str, Option<String>); 3],
    pub(crate) requests: [(&'static str, Option<String>); 3],
}

impl InjectionRequest {
    /// Reads the request of a pod; `None` if it asks for nothing.
    ///
    /// # Errors
    /// The pod is refused, for all the reasons together.
    pub(crate) fn read(pod: &Pod, options: &InjectorOptions) -> Result<Option<Self>, Problems> {
        let given = GivenAnnotations::sort(&pod.metadata.annotations, options.vault_annotations);
        let mut problems = Problems::default();
        let Some(inject) = given.get(Key::Inject) else { return Ok(None) };
        match problems.parse(Some(inject), values::boolean) {
            Some(true) => {}
            Some(false) => return Ok(None),
            None => return Err(problems),
        }
        given.refused.iter().for_each(|why| problems.add(why));
        if pod.spec.os.name == "windows" {
            problems.add("the pod is for Windows, and keyward runs on Linux");
        }
        let outputs = Outputs::read(&given, &mut problems);
        let placement = Placement::read(pod, &given, &outputs.folders, &mut problems);
        let revoke = given.get(Key::RevokeOnShutdown);
        let revokes = problems.parse(revoke, values::boolean).unwrap_or_default();
        if let (true, Some(revoke), Life::Init) = (revokes, revoke, placement.life) {
            problems.value(revoke, "with pre-populate-only nothing runs at the pod's end; remove one of the two");
        }
        let request = Self {
            image: overridden(options, Setting::Image, &options.image, given.get(Key::Image), &mut problems),
            login: Login::read(options, &given, &mut problems),
            outputs,
            placement,
            resources: Resources::read(&given, &mut problems),
            interval: problems.parse(given.get(Key::Interval), values::line),
            log_level: problems.parse(given.get(Key::LogLevel), log_level).unwrap_or_else(|| "info".to_owned()),
            log_format: problems.parse(given.get(Key::LogFormat), log_format).unwrap_or("json"),
            revokes,
            is_vault: inject.is_vault(),
        };
        if problems.is_empty() { Ok(Some(request)) } else { Err(problems) }
    }
}

/// Returns true if the Vault Agent injector has injected the pod, and nothing asks for keyward besides.
pub(crate) fn is_left_to_vault(pod: &Pod) -> bool {
    let annotations = &pod.metadata.annotations;
    let is_injected = annotations.get(VAULT_STATUS).is_some_and(|status| status == INJECTED);
    is_injected && !annotations.contains_key(INJECT)
}

/// Returns the value of an annotation if the operator allows it, or else the operator's.
fn overridden(
    options: &InjectorOptions,
    setting: Setting,
    default: &str,
    given: Option<&Given>,
    problems: &mut Problems,
) -> String {
    let Some(given) = given else { return default.to_owned() };
    let value = match setting {
        Setting::Mount => mount(&given.value),
        Setting::Address => given.value.trim_end_matches('/'),
        _ => &given.value,
    };
    if value != default.trim_end_matches('/') && !options.allows(setting, value) {
        problems.value(
            given,
            &format!("the operator allows no other {0} for this; remove the annotation, or have the webhook started with --allow {0}={value:.200}", setting.name()),
        );
    }
    if !value.is_empty() && values::line(value).is_err() {
        problems.value(given, "expected a text of one line");
    }
    value.to_owned()
}

/// Returns a mount as the configuration has it: Vault's annotations begin with `auth/`.
fn mount(text: &str) -> &str {
    text.strip_prefix("auth/").unwrap_or(text).trim_matches('/')
}

impl Login {
    fn read(options: &InjectorOptions, given: &GivenAnnotations, problems: &mut Problems) -> Self {
        let server = &options.server;
        let default = server.method;
        let asked = overridden(options, Setting::Method, default.name(), given.get(Key::Method), problems);
        let method = asked.parse().unwrap_or_else(|why: String| {
            if let Some(given) = given.get(Key::Method) {
                problems.value(given, &why);
            }
            default
        });
        // A mount of the operator's is one of its own method.
        let own = server.mount.as_deref().filter(|_| method == default).map(mount);
        let mount = overridden(options, Setting::Mount, own.unwrap_or(method.name()), given.get(Key::Mount), problems);
        let namespace = server.namespace.clone().unwrap_or_default();
        let namespace = overridden(options, Setting::Namespace, &namespace, given.get(Key::Namespace), problems);
        let role = match given.get(Key::Role) {
            Some(role) => problems.parse(Some(role), values::line),
            None => server.role.clone(),
        };
        if role.is_none() && given.get(Key::Role).is_none() {
            problems.add("annotation keyward.dev/role is missing: the role of the login");
        }
        let identity = match method {
            LoginMethod::Kubernetes => Identity::ServiceAccount { audience: server.audience.clone() },
            LoginMethod::Jwt => {
                let audience = server.audience.clone().unwrap_or_else(|| server.address.clone());
                Identity::ServiceAccount { audience: Some(audience) }
            }
            LoginMethod::Azure => azure(options, given, problems),
        };
        Self {
            address: overridden(options, Setting::Address, &server.address, given.get(Key::Address), problems),
            namespace: Some(namespace).filter(|namespace| !namespace.is_empty()),
            method,
            mount,
            role: role.unwrap_or_default(),
            identity,
        }
    }
}

/// Reads client id and tenant of the Azure identity. One that is missing is a problem, so that its empty text goes nowhere.
fn azure(options: &InjectorOptions, given: &GivenAnnotations, problems: &mut Problems) -> Identity {
    let client_id = given.get(Key::AzureClientId);
    if client_id.is_none() {
        problems.add("annotation keyward.dev/azure-client-id is missing: the client id of the identity that the pod's service account is federated with");
    } else if options.server.azure_tenant.is_none() {
        problems.add("the operator has set no tenant of Azure (--azure-tenant), which the method azure needs");
    }
    Identity::Azure {
        client_id: problems.parse(client_id, values::line).unwrap_or_default(),
        tenant: options.server.azure_tenant.clone().unwrap_or_default(),
    }
}

impl Resources {
    fn read(given: &GivenAnnotations, problems: &mut Problems) -> Self {
        let mut read = |key: Key, default: Option<&str>| match given.get(key) {
            // Of the Vault Agent injector an empty value is none.
            Some(given) if given.value.is_empty() => None,
            Some(given) => problems.parse(Some(given), values::quantity),
            None => default.map(str::to_owned),
        };
        Self {
            limits: [
                ("cpu", read(Key::LimitsCpu, None)),
                ("memory", read(Key::LimitsMemory, Some("64Mi"))),
                ("ephemeral-storage", read(Key::LimitsEphemeral, None)),
            ],
            requests: [
                ("cpu", read(Key::RequestsCpu, Some("10m"))),
                ("memory", read(Key::RequestsMemory, Some("16Mi"))),
                ("ephemeral-storage", read(Key::RequestsEphemeral, None)),
            ],
        }
    }
}

fn log_level(text: &str) -> Result<String, String> {
    const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];
    let level = text.to_ascii_lowercase();
    let is_level = LEVELS.contains(&level.as_str());
    if is_level { Ok(level) } else { Err(format!("expected one of {}", LEVELS.join(", "))) }
}

fn log_format(text: &str) -> Result<&'static str, String> {
    match text.to_ascii_lowercase().as_str() {
        "json" => Ok("json"),
        "text" | "standard" => Ok("text"),
        _ => Err("expected \"json\" or \"text\"".to_owned()),
    }
}
