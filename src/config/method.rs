//! `[session.NAME.METHOD]`: the login method of a session, which has one of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use keyward_agent::identity::{
    AppRoleOptions, AwsCredentialOrigin, AwsIdentityOptions, CloudEndpoints, CloudIdentityOptions, GcpIdentityOptions,
    GcpOrigin, IdentityMethod, IdentityOrigin, JwtFileOptions, LoginFields, ManagedIdentity, ProviderVariables,
};
use keyward_agent::login::AuthMethodKind;
use keyward_agent::server_client::{ServerClientOptions, ServerKind};
use keyward_http::client::ClientCertificate;

use super::reader::Reader;
use super::values::{self, ValueError, invalid};
use super::{Certificate, NeedKind, PathUse, Session};
use super::{aws, ci_token, client_certificate, cloud, gcp, workload_api};

/// Method of a session, with the values that it implies for the login.
pub(super) struct SessionMethod {
    /// The role to log in as; empty where the method has none.
    pub(super) role: String,
    pub(super) method: IdentityMethod,
    /// The mount that the method has unless the server's operator chose another; `None` where there is no login.
    pub(super) mount: Option<&'static str>,
    /// The client certificate to present instead of the server's.
    pub(super) certificate: Option<ClientCertificate>,
}

impl SessionMethod {
    /// Returns the kind of the server's auth method, whose usual mount has its name.
    pub(super) fn auth_method(&self) -> AuthMethodKind {
        if self.mount == Some("kubernetes") { AuthMethodKind::Kubernetes } else { AuthMethodKind::Other }
    }
}

const METHODS: [&str; 8] = ["cloud", "aws", "gcp", "jwt", "kubernetes", "approle", "cert", "token_file"];

/// Default of `kubernetes.file`: the mounted token of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Reads the method of a session that logs in to `server`, if that is known.
pub(super) fn read(
    reader: &mut Reader<'_>,
    server: Option<&ServerClientOptions>,
    certificates: &[&Certificate],
) -> SessionMethod {
    let methods: Vec<_> = METHODS.into_iter().filter_map(|name| Some((reader.locate(name)?, name))).collect();
    let Some((_, name)) = methods.first().copied() else {
        let advice = format!("a session has one method: write [{}] with role and resource", reader.key("cloud"));
        reader.missing("cloud", &advice);
        return placeholder();
    };
    for (at, other) in methods.iter().skip(1) {
        let message = format!("conflicts with {}: a session has one method", reader.key(name));
        reader.error(*at, other, message, "keep one, or write another session");
        let _ = reader.table(other);
    }
    let is_consul = server.is_some_and(|server| server.kind == ServerKind::Consul);
    let Some(table) = reader.table(name) else { return placeholder() };
    if is_consul && !matches!(name, "cloud" | "jwt" | "kubernetes") {
        let message = "a method that a server of the kind consul does not have";
        let advice = "its own login takes a signed token: write cloud, jwt or kubernetes";
        reader.scope.diagnostics.error(table.at, &table.path, message, advice);
    }
    match name {
        "cloud" => {
            let (role, options) = cloud::read(table, !is_consul);
            SessionMethod {
                role,
                method: IdentityMethod::Cloud(Box::new(options)),
                mount: Some("azure"),
                certificate: None,
            }
        }
        "aws" => {
            let (role, options) = aws::read(table);
            SessionMethod {
                role,
                method: IdentityMethod::Aws(Box::new(options)),
                mount: Some("aws"),
                certificate: None,
            }
        }
        "gcp" => {
            let (role, options) = gcp::read(table);
            SessionMethod {
                role,
                method: IdentityMethod::Gcp(Box::new(options)),
                mount: Some("gcp"),
                certificate: None,
            }
        }
        "jwt" if ci_token::is_named(&table) => {
            let (role, options) = ci_token::read(table, !is_consul);
            SessionMethod {
                role,
                method: IdentityMethod::CiJob(Box::new(options)),
                mount: Some("jwt"),
                certificate: None,
            }
        }
        "jwt" if workload_api::is_named(&table) => {
            let (role, options) = workload_api::read(table, !is_consul);
            SessionMethod {
                role,
                method: IdentityMethod::WorkloadApi(Box::new(options)),
                mount: Some("jwt"),
                certificate: None,
            }
        }
        "jwt" => signed_token(table, "jwt", None, is_consul),
        "kubernetes" => signed_token(table, "kubernetes", Some(SERVICE_ACCOUNT), is_consul),
        "approle" => approle(table),
        "cert" => {
            let (role, certificate, awaited) = client_certificate::read(table, server, certificates);
            SessionMethod { role, method: IdentityMethod::Certificate { awaited }, mount: Some("cert"), certificate }
        }
        _ => {
            let mut table = table;
            let text = table.required("file", "the file that holds a token of the server");
            let file = text.and_then(|text| {
                let path = table.parse(&text, values::secret_file_path)?;
                table.warn_if_readable_by_others(&text, &path);
                Some(path)
            });
            let file = file.unwrap_or_default();
            table.finish();
            SessionMethod {
                role: String::new(),
                method: IdentityMethod::TokenFile(file),
                mount: None,
                certificate: None,
            }
        }
    }
}

fn signed_token(
    mut table: Reader<'_>,
    mount: &'static str,
    default_file: Option<&str>,
    is_consul: bool,
) -> SessionMethod {
    let role = cloud::role(&mut table, !is_consul);
    let remove = table.flag("remove_after_reading", false);
    let file = match default_file {
        Some(default_file) if table.locate("file").is_none() => {
            let file = PathBuf::from(default_file);
            table.record(table.key("file"), NeedKind::Path(file.clone(), PathUse::ReadSecret));
            file
        }
        _ => later_file(&mut table, "file", "the file that holds the signed token", remove),
    };
    table.finish();
    SessionMethod {
        role,
        method: IdentityMethod::Jwt(JwtFileOptions { file, remove }),
        mount: Some(mount),
        certificate: None,
    }
}

fn approle(mut table: Reader<'_>) -> SessionMethod {
    let role_id_file = later_file(&mut table, "role_id_file", "the file that holds the role's id", false);
    let remove_secret_id = table.flag("remove_secret_id_after_reading", false);
    let secret_id_file = table.text("secret_id_file").and_then(|text| {
        let path = table.parse(&text, values::secret_file_path)?;
        table.warn_if_readable_by_others(&text, &path);
        if remove_secret_id {
            table.record_path(&text, &path, PathUse::Replace);
        }
        Some(path)
    });
    let wrapping_path = table.parse_text("secret_id_wrapping_path", wrapping_path);
    if secret_id_file.is_none() && table.locate("secret_id_file").is_none() {
        for key in ["remove_secret_id_after_reading", "secret_id_wrapping_path"] {
            if let Some(at) = table.locate(key) {
                let advice = "set secret_id_file, or leave it out";
                table.error(at, key, "has no effect without secret_id_file", advice);
            }
        }
    }
    table.finish();
    let options = AppRoleOptions { role_id_file, secret_id_file, remove_secret_id, wrapping_path };
    SessionMethod {
        role: String::new(),
        method: IdentityMethod::AppRole(options),
        mount: Some("approle"),
        certificate: None,
    }
}

/// Reads the path of a file that may appear after the start: the session waits for it, and may remove it.
fn later_file(table: &mut Reader<'_>, name: &'static str, meaning: &str, is_removed: bool) -> PathBuf {
    let text = table.required(name, meaning);
    let path = text.and_then(|text| {
        let path = table.parse(&text, values::secret_file_path)?;
        table.record_path(&text, &path, PathUse::ReadSecret);
        if is_removed {
            table.record_path(&text, &path, PathUse::Replace);
        }
        Some(path)
    });
    path.unwrap_or_default()
}

fn wrapping_path(text: &str) -> Result<String, ValueError> {
    let path = text.trim_matches('/');
    if path.is_empty() || path.contains([' ', '?', '#']) {
        return invalid(
            "is not a path",
            "write the path that created the wrapping, such as \"auth/approle/role/web/secret-id\"",
        );
    }
    Ok(path.to_owned())
}

/// Returns a placeholder method for a session without one.
fn placeholder() -> SessionMethod {
    let method = IdentityMethod::Cloud(Box::new(CloudIdentityOptions {
        resource: String::new(),
        scope: None,
        from: IdentityOrigin::Instance(ManagedIdentity::System),
        overrides: LoginFields::default(),
        variables: ProviderVariables::default(),
        endpoints: CloudEndpoints::provider(),
    }));
    SessionMethod { role: String::new(), method, mount: Some("azure"), certificate: None }
}

/// Describes a value of the session's method: its reference, if the value came from a variable or a file.
pub(super) fn reference_or_value(
    session: &Session,
    key: &str,
    value: &str,
    references: &BTreeMap<String, String>,
) -> String {
    let written = METHODS.iter().find_map(|name| references.get(&format!("session.{}.{name}.{key}", session.name)));
    written.map_or(value, String::as_str).to_owned()
}

/// Describes the proof of identity for `keyward check`, one clause per entry.
pub(super) fn describe(session: &Session, references: &BTreeMap<String, String>) -> Vec<String> {
    let describe_value = |key: &str, value: &str| reference_or_value(session, key, value, references);
    let file = |key: &str, path: &Path| describe_value(key, &path.display().to_string());
    match &session.identity {
        IdentityMethod::Cloud(options) => describe_cloud(options, &describe_value),
        IdentityMethod::Aws(options) => describe_aws(options, &describe_value),
        IdentityMethod::Gcp(options) => vec![describe_gcp(options, &describe_value)],
        IdentityMethod::CiJob(options) => vec![ci_token::describe(options, &describe_value)],
        IdentityMethod::WorkloadApi(options) => vec![workload_api::describe(options, &describe_value)],
        IdentityMethod::Jwt(JwtFileOptions { file: path, remove }) => {
            let removal = if *remove { ", and removes it after reading" } else { "" };
            vec![format!("authenticates with the signed token in {}{removal}", file("file", path))]
        }
        IdentityMethod::AppRole(options) => {
            let role_id = file("role_id_file", &options.role_id_file);
            let mut does = vec![format!("authenticates with the role id in {role_id}")];
            if let Some(path) = &options.secret_id_file {
                let wrapped = if options.wrapping_path.is_some() { "wrapped " } else { "" };
                let removal = if options.remove_secret_id { ", and removes it after reading" } else { "" };
                does.push(format!("and the {wrapped}secret id in {}{removal}", file("secret_id_file", path)));
            }
            does
        }
        IdentityMethod::Certificate { .. } => {
            let identity = session.upstream.client.tls.identity.as_ref();
            let certificate = identity.map(|identity| identity.certificate.display().to_string()).unwrap_or_default();
            vec![format!("authenticates with the client certificate {}", describe_value("client_cert", &certificate))]
        }
        IdentityMethod::TokenFile(path) => {
            vec![format!("uses the token in {}, and never revokes it", file("file", path))]
        }
    }
}

fn describe_aws(options: &AwsIdentityOptions, describe_value: &impl Fn(&str, &str) -> String) -> Vec<String> {
    let credentials = match &options.origin {
        AwsCredentialOrigin::Automatic => "the AWS credentials of its environment or instance profile".to_owned(),
        AwsCredentialOrigin::Environment => "the AWS access key of its environment".to_owned(),
        AwsCredentialOrigin::Profile { file, name } => {
            let file = describe_value("credentials_file", &file.display().to_string());
            format!("the AWS profile {} in {file}", describe_value("profile", name))
        }
        AwsCredentialOrigin::WebIdentity => "the AWS web identity of its environment".to_owned(),
        AwsCredentialOrigin::Container => "the AWS role of its container".to_owned(),
        AwsCredentialOrigin::Instance => "this machine's AWS instance profile".to_owned(),
    };
    let region = options.region.as_ref().map(|region| format!("for STS in {}", describe_value("region", region)));
    let server_id = options.server_id.as_ref().map(|id| format!("for the server {}", describe_value("server_id", id)));
    [Some(format!("authenticates with {credentials}")), region, server_id].into_iter().flatten().collect()
}

fn describe_gcp(options: &GcpIdentityOptions, describe_value: &impl Fn(&str, &str) -> String) -> String {
    match &options.origin {
        GcpOrigin::Instance { service_account } => {
            let account = describe_value("service_account", service_account);
            format!("authenticates with this machine's Google identity token of the service account {account}")
        }
        GcpOrigin::SignJwt { service_account: None } => {
            "authenticates with a token that Google signs for this machine's service account".to_owned()
        }
        GcpOrigin::SignJwt { service_account: Some(account) } => {
            let account = describe_value("service_account", account);
            format!("authenticates with a token that Google signs for the service account {account}")
        }
        GcpOrigin::Key { file } => {
            let file = describe_value("credentials_file", &file.display().to_string());
            format!("authenticates with the service account key in {file}")
        }
    }
}

fn describe_cloud(options: &CloudIdentityOptions, describe_value: &impl Fn(&str, &str) -> String) -> Vec<String> {
    let resource = describe_value("resource", &options.resource);
    let identity = match &options.from {
        IdentityOrigin::Environment => None,
        IdentityOrigin::Instance(ManagedIdentity::System) => Some("this machine's managed identity".to_owned()),
        IdentityOrigin::Instance(ManagedIdentity::ObjectId(id)) => {
            Some(format!("this machine's managed identity with object id {}", describe_value("object_id", id)))
        }
        IdentityOrigin::Instance(ManagedIdentity::ClientId(id)) => {
            Some(format!("this machine's managed identity with client id {}", describe_value("client_id", id)))
        }
    };
    let mut does = vec![if let Some(identity) = identity {
        format!("authenticates with {identity}, for the resource {resource}")
    } else {
        let scope = options.scope.as_ref().map(|scope| describe_value("scope", scope));
        let scope = CloudIdentityOptions { resource, scope, ..options.clone() }.environment_scope();
        format!("authenticates with the identity of the environment variables, for the scope {scope}")
    }];
    let fields = &options.overrides;
    let fields = [
        ("vm_name", &fields.vm_name),
        ("vmss_name", &fields.vmss_name),
        ("resource_group_name", &fields.resource_group_name),
        ("subscription_id", &fields.subscription_id),
        ("resource_id", &fields.resource_id),
    ];
    for (name, value) in fields {
        does.extend(value.as_ref().map(|value| format!("sends {name} = {} at login", describe_value(name, value))));
    }
    does
}
