//! Computes the accesses that a configuration needs. Pure.

use std::path::{Path, PathBuf};

use keyward_agent::identity::IdentityMethod;
use keyward_config::{CertificateIssuer, Config, Environment, LoadOutcome, Need, NeedKind, PathUse};
#[cfg(feature = "gateway")]
use keyward_gateway::client_setup::{UserConfigFiles, client_variable_names};
use keyward_http::client::{ClientOptions, ProxyMode, ServerAddress};
use keyward_http::server::Endpoint;
use rustix::thread::CapabilitySet;
use url::Url;

use super::plan::SandboxPlan;

/// Files and folders of the system that libraries and this program read: names, users, time zones, authorities, processes.
/// `/etc` as a whole: DHCP clients, `useradd` and configuration management replace its files by rename, and a rule for a file
/// does not follow that (glibc then asks a name server at 127.0.0.1). Those of its files that are listed too may be symlinks to
/// elsewhere.
pub(super) const SYSTEM_FILES: [&str; 39] = [
    "/etc",
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/nsswitch.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/passwd",
    "/etc/group",
    "/etc/subuid",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/machine-id",
    "/etc/os-release",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust",
    "/etc/ca-certificates",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share",
    "/usr/local/share/ca-certificates",
    "/lib",
    "/lib64",
    "/proc",
    "/sys/fs/cgroup",
    "/sys/devices/system/cpu",
    "/dev/null",
    "/dev/urandom",
    // `/etc/resolv.conf` is a symlink to a file in one of these, which is replaced too.
    "/run/systemd/resolve",
    "/run/NetworkManager",
    "/run/resolvconf",
    // All files of NixOS.
    "/nix/store",
];

/// Folders of the packaged unit, which other modules use without a setting.
pub(super) const OWN_FOLDERS: [&str; 2] = ["/run/keyward", "/var/lib/keyward"];

impl SandboxPlan {
    /// Computes the accesses that a configuration of these files needs. With errors in the configuration it holds only the
    /// paths that could be read.
    pub fn new(outcome: &LoadOutcome, files: &[PathBuf], environment: &Environment) -> Self {
        let mut plan = Self::default();
        plan.read.extend(SYSTEM_FILES.iter().map(PathBuf::from));
        plan.write.extend(OWN_FOLDERS.iter().map(PathBuf::from));
        // A relative path has the parent "", which no rule could be made for.
        let absolute = |file: &PathBuf| std::path::absolute(file).unwrap_or_else(|_| file.clone());
        plan.read.extend(files.iter().chain(&outcome.files).map(absolute));
        for need in &outcome.needs {
            plan.add_need(need);
        }
        plan.add_environment(environment);
        if let Some(config) = &outcome.config {
            plan.add_config(config, environment);
        }
        plan
    }

    fn add_need(&mut self, need: &Need) {
        match &need.kind {
            NeedKind::Path(path, PathUse::Read | PathUse::ReadSecret | PathUse::ReadFolder) => {
                self.read.insert(path.clone());
            }
            NeedKind::Path(..) | NeedKind::Listen(Endpoint::Unix(_)) => {
                self.write.extend(need.written_folder().map(Path::to_owned));
            }
            NeedKind::Run(command) => {
                self.programs.commands.insert(command.clone());
            }
            NeedKind::Listen(Endpoint::Tcp(address)) => {
                self.bind.insert(address.port());
                if (1..1024).contains(&address.port()) {
                    self.capabilities |= CapabilitySet::NET_BIND_SERVICE;
                }
            }
            NeedKind::Listen(Endpoint::Activated(_)) => {}
            // A user or group can be given a file by root without more.
            NeedKind::Owner(..) | NeedKind::Group(..) => self.capabilities |= CapabilitySet::CHOWN,
        }
        self.hidden.extend(need.path().filter(|_| need.is_hidden).map(|(path, _)| path.clone()));
    }

    fn add_environment(&mut self, environment: &Environment) {
        let files = ["SSL_CERT_FILE", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_CLIENT_CERTIFICATE_PATH"];
        let paths = files.iter().chain(&["CREDENTIALS_DIRECTORY"]).filter_map(|name| environment.variables.get(*name));
        // A list of folders, as in OpenSSL.
        let ca_folders = environment.variables.get("SSL_CERT_DIR").into_iter().flat_map(std::env::split_paths);
        self.read.extend(paths.map(PathBuf::from).chain(ca_folders).filter(|path| path.is_absolute()));
        self.abstract_socket = environment.variables.get("NOTIFY_SOCKET").is_some_and(|socket| socket.starts_with('@'));
    }

    fn add_config(&mut self, config: &Config, environment: &Environment) {
        // DNS falls back to TCP for long responses.
        self.connect_to(53);
        for certificate in &config.certificates {
            if let CertificateIssuer::WorkloadApi(options) = &certificate.issuer {
                self.read.insert(options.socket.clone());
            }
        }
        for session in &config.sessions {
            self.add_server(&session.upstream.client, environment);
            self.add_identity(&session.identity, environment);
        }
        if !config.identities.is_empty() {
            self.programs.variables.extend(keyward_config::TOOL_VARIABLES.map(str::to_owned));
        }
        for identity in &config.identities {
            self.add_identity(&identity.origin.to_method(""), environment);
            if let Some(role) = &identity.aws_role {
                self.read.extend(role.endpoints.sts_ca.clone());
                let urls: Vec<_> = role.url().into_iter().collect();
                self.connect_to_identity(&urls, environment);
            }
        }
        self.programs.variables.extend(config.env_templates.iter().map(|template| template.options.text.name.clone()));
        self.executables = config.callers.as_ref().is_some_and(|callers| !callers.executables().is_empty());
        #[cfg(feature = "acl")]
        self.add_acl(config);
        #[cfg(feature = "gateway")]
        self.add_gateway(config, environment);
    }

    fn add_identity(&mut self, identity: &IdentityMethod, environment: &Environment) {
        match identity {
            IdentityMethod::Cloud(options) => {
                let endpoints = &options.endpoints;
                self.read.extend([endpoints.arc_tokens.clone(), endpoints.arc_agent.clone()]);
                self.read.extend(endpoints.authority_ca.clone());
                for url in [&endpoints.metadata, &endpoints.arc] {
                    self.connect_to_url(url);
                }
                self.connect_to(443);
                let of_azure =
                    |name: &str| ["AZURE_", "IDENTITY_", "IMDS_", "MSI_"].iter().any(|prefix| name.starts_with(prefix));
                for (_, value) in environment.variables.iter().filter(|(name, _)| of_azure(name)) {
                    let url = Url::parse(value).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
                    if let Some(url) = url {
                        self.connect_to_url(&url);
                    }
                    // Certificates and token files, under whichever name an SDK knows.
                    self.read.extend(Some(PathBuf::from(value)).filter(|path| path.is_absolute()));
                }
                self.connect_to_proxies(environment);
            }
            IdentityMethod::Aws(options) => {
                self.read.extend(options.files());
                self.read.extend(options.endpoints.sts_ca.clone());
                self.connect_to_identity(&options.urls(), environment);
            }
            IdentityMethod::Gcp(options) => {
                self.read.extend(options.endpoints.credentials_ca.clone());
                self.connect_to_identity(&options.urls(), environment);
            }
            IdentityMethod::CiJob(options) => self.connect_to_identity(&options.urls(), environment),
            // A socket file, whose folder may not be readable.
            IdentityMethod::WorkloadApi(options) => {
                self.read.insert(options.socket.clone());
            }
            // The readers of their keys record their files.
            IdentityMethod::Jwt(_)
            | IdentityMethod::AppRole(_)
            | IdentityMethod::Certificate { .. }
            | IdentityMethod::TokenFile(_) => {}
        }
    }

    /// Allows the services of an identity, and the proxies to those outside of the machine.
    fn connect_to_identity(&mut self, urls: &[Url], environment: &Environment) {
        for url in urls {
            self.connect_to_url(url);
        }
        self.connect_to_proxies(environment);
    }

    #[cfg(feature = "acl")]
    fn add_acl(&mut self, config: &Config) {
        let Some(acl) = &config.acl else { return };
        if acl.service.store.folder().is_none() {
            // A restore spools the snapshot there.
            self.write.insert(std::env::temp_dir());
        }
        // A rekey replaces the key file, and a used bootstrap reset file beside it is deleted.
        self.write.extend(acl.service.key_file.iter().filter_map(|file| file.parent()).map(Path::to_owned));
        // Stored methods name the servers of their keys, which change at run time.
        self.connect = None;
    }

    #[cfg(feature = "gateway")]
    fn add_gateway(&mut self, config: &Config, environment: &Environment) {
        let Some(gateway) = &config.gateway else { return };
        self.connect_to_url(&gateway.proxy.upstream);
        gateway.proxy.aliases.iter().for_each(|url| self.connect_to_url(url));
        // Downloads and uploads are redirected to other hosts.
        self.connect_to(443);
        self.connect_through(&gateway.proxy.proxy, environment);
        if gateway.process_token.is_some() {
            self.programs.variables.extend(client_variable_names(&gateway.host));
        }
        self.read.extend(gateway.process_files.iter().flat_map(UserConfigFiles::candidates));
    }

    fn add_server(&mut self, client: &ClientOptions, environment: &Environment) {
        match &client.address {
            ServerAddress::Url(url) => self.connect_to_url(url),
            ServerAddress::Unix(_) => {}
        }
        self.connect_through(&client.proxy, environment);
    }

    fn connect_through(&mut self, proxy: &ProxyMode, environment: &Environment) {
        match proxy {
            ProxyMode::Environment => self.connect_to_proxies(environment),
            ProxyMode::Direct => {}
            ProxyMode::Through(url) => self.connect_to_url(url),
        }
    }

    fn connect_to_proxies(&mut self, environment: &Environment) {
        for (name, value) in &environment.variables {
            if ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"].contains(&name.to_ascii_uppercase().as_str()) {
                let address = if value.contains("://") { value.clone() } else { format!("http://{value}") };
                if let Ok(url) = Url::parse(&address) {
                    self.connect_to_url(&url);
                }
            }
        }
    }

    fn connect_to_url(&mut self, url: &Url) {
        url.port_or_known_default().into_iter().for_each(|port| self.connect_to(port));
    }

    fn connect_to(&mut self, port: u16) {
        // Any port is allowed otherwise.
        if let Some(ports) = &mut self.connect {
            ports.insert(port);
        }
    }
}

#[cfg(test)]
mod tests {
    use keyward_config::{Purpose, load_text};

    use super::*;

    fn plan(text: &str, variables: &[(&str, &str)]) -> SandboxPlan {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let environment = Environment { variables, user: 1000 };
        let file = PathBuf::from("/etc/keyward/keyward.toml");
        let outcome = load_text(&file, text, &environment, Purpose::Check);
        assert!(outcome.config.is_some(), "{:?}", outcome.errors);
        SandboxPlan::new(&outcome, &[file], &environment)
    }

    const SESSION: &str = "[server.main]\nkind = \"vault\"\naddress = \"https://vault.example.com:8201\"\n\
        [session.web.cloud]\nrole = \"web\"\nresource = \"https://vault.example.com\"\n";

    #[test]
    fn a_plan_has_the_files_and_ports_of_the_configuration_and_no_more() {
        let text = format!(
            "{SESSION}[sink.token]\npath = \"/srv/app/token\"\n\
             [listener.health]\nkind = \"health\"\naddress = \"tcp://127.0.0.1:8700\"\n"
        );
        let plan = plan(&text, &[("HTTPS_PROXY", "http://proxy.example.com:3128"), ("NOTIFY_SOCKET", "@x")]);
        assert!(plan.read.contains(Path::new("/etc/keyward/keyward.toml")));
        assert!(plan.write.contains(Path::new("/srv/app")));
        assert!(!plan.read.iter().chain(&plan.write).any(|path| Path::new("/var/lib/other/secret").starts_with(path)));
        assert_eq!(plan.bind, [8700].into());
        assert_eq!(plan.connect, Some([53, 80, 443, 3128, 8201, 40342].into()));
        assert_eq!(
            (plan.programs.commands.len(), plan.capabilities, plan.executables),
            (0, CapabilitySet::empty(), false)
        );
        assert!(plan.abstract_socket);
    }

    #[test]
    fn files_that_are_read_removed_or_given_away_are_needs() {
        let text = "[server.main]\nkind = \"vault\"\naddress = \"https://vault.example.com\"\nca_file = \"/srv/ca/ca.pem\"\n\
            [session.web.jwt]\nrole = \"web\"\nfile = \"/srv/proof/token\"\nremove_after_reading = true\n\
            [sink.token]\npath = \"/srv/app/token\"\nowner = \"1234\"\n\
            encrypt = { public_key_file = \"/srv/reader/key.json\" }\n";
        let plan = plan(text, &[]);
        for file in ["/srv/ca/ca.pem", "/srv/proof/token", "/srv/reader/key.json"] {
            assert!(plan.read.contains(Path::new(file)), "{file}: {:?}", plan.read);
        }
        assert!(["/srv/proof", "/srv/app"].iter().all(|folder| plan.write.contains(Path::new(folder))));
        assert_eq!((plan.capabilities, plan.hidden), (CapabilitySet::CHOWN, [].into()));
    }

    #[test]
    fn a_relative_configuration_file_adds_the_folder_that_it_is_in() {
        let environment = Environment { variables: [].into(), user: 1000 };
        let file = PathBuf::from("keyward.toml");
        let outcome = load_text(&file, SESSION, &environment, Purpose::Check);
        let plan = SandboxPlan::new(&outcome, &[file], &environment);
        assert!(plan.read.iter().all(|path| path.is_absolute()), "{:?}", plan.read);
        assert!(plan.read.contains(&std::env::current_dir().unwrap().join("keyward.toml")));
    }

    #[test]
    fn each_folder_of_ssl_cert_dir_is_read() {
        let plan = plan(SESSION, &[("SSL_CERT_DIR", "/opt/ca:/srv/ca:relative")]);
        assert!(["/opt/ca", "/srv/ca"].iter().all(|folder| plan.read.contains(Path::new(folder))));
        assert!(!plan.read.contains(Path::new("relative")));
    }

    #[cfg(feature = "gateway")]
    #[test]
    fn a_gateway_connects_to_its_proxy_and_reads_the_users_terraform_configuration() {
        let text = "[gateway]\nupstream = \"https://tfe.example.com\"\nlisten = \"tcp://127.0.0.1:8800\"\n\
            token_file = \"/etc/keyward/platform.token\"\nlocal_token_file = \"/var/lib/keyward/gateway.token\"\n\
            proxy = \"http://proxy.example.com:3129\"\nprocess_token = \"local_token\"\n\
            [process]\ncommand = [\"/bin/app\"]\npass_env = [\"HOME\"]\n";
        let plan = plan(text, &[("HOME", "/srv/app"), ("HTTPS_PROXY", "http://other.example.com:3128")]);
        assert_eq!(plan.connect, Some([53, 443, 3129].into()));
        let names = [".terraformrc", ".tofurc", ".terraform.d"];
        assert!(names.iter().all(|name| plan.read.contains(&Path::new("/srv/app").join(name))), "{:?}", plan.read);
    }

    #[cfg(feature = "etcd")]
    #[test]
    fn an_acl_server_on_etcd_writes_to_the_temporary_folder_and_beside_its_key() {
        let text = "[acl]\nlisten = \"tcp://127.0.0.1:8500\"\nkey_file = \"/srv/acl/seal.key\"\n\
            [acl.etcd]\nendpoints = [\"http://127.0.0.1:2379\"]\n";
        let plan = plan(text, &[]);
        assert!(plan.write.contains(&std::env::temp_dir()) && plan.write.contains(Path::new("/srv/acl")));
    }

    #[test]
    fn programs_and_a_port_below_1024_are_needs_too() {
        let text = format!(
            "{SESSION}[process]\ncommand = [\"/bin/app\", \"-x\"]\n[listener.health]\nkind = \"health\"\naddress = \"tcp://127.0.0.1:81\"\n"
        );
        let plan = plan(&text, &[]);
        assert_eq!(plan.programs.commands, [vec!["/bin/app".to_owned(), "-x".to_owned()]].into());
        assert_eq!((plan.bind, plan.capabilities), ([81].into(), CapabilitySet::NET_BIND_SERVICE));
    }
}
