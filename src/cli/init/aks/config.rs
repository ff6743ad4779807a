//! The configuration of the sidecar.

use keyward_config::kubernetes::{IDENTITY_FOLDER, PROBES_PORT};

use super::outputs::Outputs;
use super::{Aks, Method, Workload};
use crate::cli::init::server_side::ServerSide;
use crate::cli::init::shell::TomlText;

pub(super) fn write(server: &ServerSide, flags: &Aks, outputs: &Outputs) -> String {
    let mut toml = TomlText::new("Written by `keyward init aks`.");
    server.write_server(&mut toml);
    toml.section("", "session.main");
    server.write_session(&mut toml);
    if flags.kind == Workload::Job {
        toml.comment("A job that is over needs no token any more.").flag("revoke_on_exit", true);
    }
    match flags.method {
        Method::Azure => {
            toml.section("The identity that the pod's service account is federated with.", "session.main.cloud");
            server.write_cloud(&mut toml);
            toml.flag("authenticate_from_environment", true);
        }
        Method::Jwt | Method::Kubernetes => {
            toml.section("A token of the pod's service account.", &format!("session.main.{}", flags.method.mount()))
                .text("role", &server.role)
                .text("file", &format!("{IDENTITY_FOLDER}/token"));
        }
    }
    if let Some(path) = &outputs.token_file {
        toml.section("The token, in a volume that the application shares.", "sink.token")
            .text("path", path)
            .comment("All containers of the pod may write there.")
            .flag("shared_folder", true)
            .text("mode", &flags.file_mode)
            .text("on_expiry", "remove");
    }
    for template in &outputs.templates {
        toml.section("", &format!("template.{}", template.name))
            .text("source", &format!("/etc/keyward/{}", template.key()))
            .text("destination", &template.destination)
            .text("mode", &flags.file_mode);
        if outputs.has_inner_folder(&template.destination) {
            toml.flag("create_folders", true);
        }
    }
    toml.section(
        "For `kubectl exec POD --container keyward -- keyward status`. No other container has this folder.",
        "listener.status",
    )
    .text("address", "unix:///var/lib/keyward/status.sock")
    .flag("shared_folder", true);
    toml.section("The kubelet's probes, and metrics.", "listener.probes")
        .text("kind", "health")
        .text("address", &format!("tcp://0.0.0.0:{PROBES_PORT}"));
    toml.section("", "log").text("format", "json");
    toml.finish()
}
