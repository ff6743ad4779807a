//! `keyward kubernetes agent`: the agent in an injected pod. Its configuration is a variable of the container, which nobody can change
//! during the pod's life; an annotation, and a file made of one, could change.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use keyward_config::Environment;
use keyward_machine::atomic_file::{Attributes, replace};
use keyward_machine::secure_dir;

use crate::cli::{Exit, LogChoice, run};

/// Run the agent in an injected pod.
#[derive(Debug, Args)]
pub(super) struct PodAgent {
    /// Exit once everything is written, or a login has failed
    #[arg(long)]
    exit_after_auth: bool,
    /// Maximum time to wait with --exit-after-auth, such as 5m. Failed logins are then retried until its end
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, requires = "exit_after_auth")]
    timeout: Option<Duration>,
    /// Folder for the configuration and the CA bundle; created with mode 0700
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/keyward/pod")]
    dir: PathBuf,
}

/// Variables of the container, and the files that they become.
const FILES: [(&str, &str); 2] = [("KEYWARD_POD_CONFIG", "keyward.toml"), ("KEYWARD_POD_CA", "ca.pem")];

impl PodAgent {
    pub(super) fn run(self, log: &LogChoice) -> anyhow::Result<Exit> {
        let variables = Environment::current().variables;
        let [(config, file), _] = FILES;
        if !variables.contains_key(config) {
            anyhow::bail!(
                "{config} is not set: the webhook sets it in the pods that it injects; run `keyward run --config FILE` elsewhere"
            );
        }
        let folder = secure_dir::create_private(&std::path::absolute(&self.dir)?, 0o077)?;
        let attributes = Attributes { mode: 0o600, owner: None, group: None };
        for (variable, name) in FILES {
            if let Some(text) = variables.get(variable) {
                replace(&folder.join(name), text.as_bytes(), &attributes)?;
            }
        }
        run::run(&run::Run::of_file(folder.join(file), self.exit_after_auth, self.timeout), log)
    }
}

#[cfg(all(test, feature = "injector"))]
mod tests {
    use super::*;

    #[test]
    fn the_webhook_writes_the_variables_that_the_agent_reads() {
        let [(config, _), (ca, _)] = FILES;
        assert_eq!((config, ca), (keyward_injector::CONFIG_VARIABLE, keyward_injector::CA_VARIABLE));
        assert_eq!(keyward_injector::CONFIG_FOLDER, "/var/lib/keyward/pod");
    }
}
