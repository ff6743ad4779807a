//! `keyward kubernetes webhook`: the admission webhook.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use keyward_app::injector::{CertificateSource, Injector, InjectorSetup};
use keyward_config::{Environment, Log, LogFormat};
use keyward_http::server::Endpoint;
use keyward_http::tls::ServerCertificate;
use keyward_injector::{
    AllowedOverride, InjectorOptions, KeeperOptions, KubernetesApiOptions, LoginMethod, PullPolicy, ServerDefaults,
};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::cli::run::{start_log, stop_signals};
use crate::cli::{Exit, LogChoice, print_line};

/// Serve the admission webhook.
#[derive(Debug, Args)]
pub(super) struct Webhook {
    /// Address to listen on for the API server
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    listen: std::net::SocketAddr,
    /// Address to listen on for probes and metrics, without TLS
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8301")]
    health_listen: std::net::SocketAddr,
    #[command(flatten)]
    pods: Pods,
    #[command(flatten)]
    certificate: Certificate,
}

/// Flags about the pods.
#[derive(Debug, Args)]
#[command(next_help_heading = "Pods")]
struct Pods {
    /// Address of the server that pods log in to, such as `https://vault.example.com:8200`
    #[arg(long, value_name = "URL")]
    address: String,
    /// Kind of the server: vault or openbao
    #[arg(long, value_name = "KIND", default_value = "vault", value_parser = ["vault", "openbao"])]
    server_kind: String,
    /// CA bundle (PEM) of the server, which each pod gets [default: the public CAs of the image]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Name to expect in the server's certificate instead of the address's host
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// Allow an `http://` address that is not loopback: whoever sees the network then reads tokens and secrets
    #[arg(long)]
    allow_http: bool,
    /// Namespace of the server
    #[arg(long, value_name = "NAME")]
    server_namespace: Option<String>,
    /// Method of the login: kubernetes, jwt or azure
    #[arg(long, value_name = "METHOD", default_value = "kubernetes")]
    method: LoginMethod,
    /// Mount of the auth method [default: the method's name]
    #[arg(long, value_name = "NAME")]
    mount: Option<String>,
    /// Role of pods that name none [default: each pod names its role]
    #[arg(long, value_name = "NAME")]
    role: Option<String>,
    /// Audience of the service account's token [default: the API server's; for the method jwt the address]
    #[arg(long, value_name = "AUDIENCE")]
    audience: Option<String>,
    /// Tenant of Azure identities, for the method azure
    #[arg(long, value_name = "ID")]
    azure_tenant: Option<String>,
    /// Resource of the tokens of Azure identities, byte for byte as the auth method has it
    #[arg(long, value_name = "URI", default_value = "https://management.azure.com/")]
    azure_resource: String,
    /// Image of keyward
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// When the image is pulled: Always, `IfNotPresent` or Never [default: that of Kubernetes]
    #[arg(long, value_name = "POLICY")]
    image_pull_policy: Option<PullPolicy>,
    /// Value that annotations may set in place of the operator's, such as `address=https://b.example.com`; settings are address,
    /// namespace, mount, method and image, and the value `*` stands for all; repeatable
    #[arg(long, value_name = "SETTING=VALUE")]
    allow: Vec<AllowedOverride>,
    /// Read only annotations of keyward.dev, and none of the Vault Agent injector
    #[arg(long)]
    no_vault_annotations: bool,
}

/// Flags about the certificate.
#[derive(Debug, Args)]
#[command(next_help_heading = "Certificate")]
struct Certificate {
    /// Name of the Service by which the API server calls the webhook
    #[arg(long, value_name = "NAME", required_unless_present = "tls_cert_file")]
    service: Option<String>,
    /// Namespace of the Service and of the Secret [default: that of the pod]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Name of the Secret in which replicas share the certificate; it must exist, and may be empty
    #[arg(long, value_name = "NAME", required_unless_present = "tls_cert_file")]
    secret_name: Option<String>,
    /// Name of the `MutatingWebhookConfiguration`, whose CA bundle the webhook sets
    #[arg(long, value_name = "NAME", required_unless_present = "tls_cert_file")]
    webhook_configuration: Option<String>,
    /// Certificate (PEM) that another program renews, in place of one that the webhook makes; it then calls no API
    #[arg(long, value_name = "FILE", requires = "tls_key_file", conflicts_with_all = ["service", "secret_name", "webhook_configuration"])]
    tls_cert_file: Option<PathBuf>,
    /// Key (PEM) of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_key_file: Option<PathBuf>,
    /// Address of the API server [default: that of the pod's environment]
    #[arg(long, value_name = "URL")]
    api_server: Option<Url>,
    /// Token for the API server
    #[arg(long, value_name = "FILE", default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token")]
    api_token_file: PathBuf,
    /// CA bundle (PEM) of the API server
    #[arg(long, value_name = "FILE", default_value = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")]
    api_ca_file: PathBuf,
}

impl Webhook {
    pub(super) fn run(self, log: &LogChoice) -> anyhow::Result<Exit> {
        keyward_machine::os::forbid_core_dumps()?;
        // Lines of a pod are read by programs.
        let (_logging, _) = start_log(log, &Log { format: LogFormat::Json, ..Log::default() })?;
        let setup = InjectorSetup {
            endpoint: Endpoint::Tcp(self.listen),
            health_endpoint: Endpoint::Tcp(self.health_listen),
            certificate: self.certificate.source(&Environment::current())?,
            options: self.pods.options(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let ended = runtime.block_on(async {
            let stop = CancellationToken::new();
            let signals = stop_signals(stop.clone())?;
            let injector = Injector::bind(setup)?;
            injector.introduction().iter().for_each(|line| print_line(line));
            tokio::select! {
                ended = injector.run(stop) => ended,
                twice = signals => twice,
            }
        });
        runtime.shutdown_timeout(Duration::from_secs(1));
        ended.map(|()| Exit::Ok)
    }
}

impl Pods {
    fn options(self) -> InjectorOptions {
        InjectorOptions {
            server: ServerDefaults {
                kind: self.server_kind,
                address: self.address,
                ca_file: self.ca_file,
                server_name: self.server_name,
                allow_http: self.allow_http,
                namespace: self.server_namespace,
                method: self.method,
                mount: self.mount,
                role: self.role,
                audience: self.audience,
                azure_tenant: self.azure_tenant,
                azure_resource: self.azure_resource,
            },
            allowed: self.allow,
            image: self.image,
            image_pull_policy: self.image_pull_policy,
            vault_annotations: !self.no_vault_annotations,
        }
    }
}

impl Certificate {
    fn source(self, environment: &Environment) -> anyhow::Result<CertificateSource> {
        if let (Some(certificate), Some(key)) = (self.tls_cert_file, self.tls_key_file) {
            return Ok(CertificateSource::Files(ServerCertificate {
                certificate,
                key,
                is_awaited: false,
                client_ca: None,
            }));
        }
        let missing =
            "--service, --secret-name and --webhook-configuration are needed for a certificate of the webhook's own";
        let service = self.service.context(missing)?;
        let namespace = match self.namespace {
            Some(namespace) => namespace,
            None => pod_namespace()?,
        };
        let address = match self.api_server {
            Some(address) => address,
            None => api_server(environment)?,
        };
        let api = KubernetesApiOptions {
            address,
            ca_file: self.api_ca_file,
            token_file: self.api_token_file,
            namespace: namespace.clone(),
            secret: self.secret_name.context(missing)?,
            webhook_configuration: self.webhook_configuration.context(missing)?,
        };
        Ok(CertificateSource::Kept(KeeperOptions { name: format!("{service}.{namespace}.svc") }, Box::new(api)))
    }
}

/// File with the namespace of the pod.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

fn pod_namespace() -> anyhow::Result<String> {
    let text = std::fs::read_to_string(Path::new(NAMESPACE_FILE));
    let text = text.with_context(|| format!("cannot read {NAMESPACE_FILE}; run in a pod, or set --namespace"))?;
    Ok(text.trim().to_owned())
}

/// Returns the address of the API server that the kubelet sets in each container.
fn api_server(environment: &Environment) -> anyhow::Result<Url> {
    let variable = |name: &str| {
        let value = environment.variables.get(name);
        value.with_context(|| format!("{name} is not set; run in a pod, or set --api-server"))
    };
    let host = variable("KUBERNETES_SERVICE_HOST")?;
    let port = variable("KUBERNETES_SERVICE_PORT")?;
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    Url::parse(&format!("https://{host}:{port}"))
        .context("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT make no URL")
}
