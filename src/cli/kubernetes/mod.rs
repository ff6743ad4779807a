//! `keyward kubernetes`: the admission webhook that adds keyward to pods, and keyward in such a pod.

mod agent;
#[cfg(feature = "injector")]
mod annotations;
#[cfg(feature = "injector")]
mod webhook;

use clap::{Args, Subcommand};

use super::{Exit, LogChoice};

/// Add keyward to pods of Kubernetes.
#[derive(Debug, Args)]
pub(super) struct Kubernetes {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the admission webhook that adds keyward to annotated pods
    #[cfg(feature = "injector")]
    #[command(
        after_help = "Example:\n  keyward kubernetes webhook --address https://vault.example.com:8200 --image registry.example.com/keyward:0.1.0 --service keyward-webhook --secret-name keyward-webhook --webhook-configuration keyward-webhook"
    )]
    Webhook(Box<webhook::Webhook>),
    /// List the annotations of pods that the webhook takes, and those that it refuses
    #[cfg(feature = "injector")]
    #[command(after_help = "Example:\n  keyward kubernetes annotations -o json")]
    Annotations(annotations::Annotations),
    /// Run the agent in an injected pod, with the configuration that the webhook wrote
    #[command(after_help = "Example:\n  keyward kubernetes agent --exit-after-auth --timeout 5m")]
    Agent(agent::PodAgent),
}

impl Kubernetes {
    pub(super) fn run(self, log: &LogChoice) -> anyhow::Result<Exit> {
        match self.command {
            #[cfg(feature = "injector")]
            Command::Webhook(webhook) => webhook.run(log),
            #[cfg(feature = "injector")]
            Command::Annotations(annotations) => annotations.run(),
            Command::Agent(agent) => agent.run(log),
        }
    }
}
