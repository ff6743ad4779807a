//! Variables and rendered files that the child process needs before it starts.

use tokio::sync::watch;

use keyward_credentials::credential_watch::{Availability, CredentialWatch, any_changed};
use keyward_machine::command::{EnvVars, ProvidedEnv};

/// Named inputs that the process needs before it starts: variables and rendered files.
pub type ProcessInputs = Vec<(String, CredentialWatch<ProvidedEnv>)>;

/// The current inputs, which a reload replaces.
#[derive(Debug)]
pub(super) struct InputSet {
    inputs: ProcessInputs,
    replacements: watch::Receiver<ProcessInputs>,
}

impl InputSet {
    /// Creates the set; later values of `replacements` take its place.
    pub(super) fn new(mut replacements: watch::Receiver<ProcessInputs>) -> Self {
        let inputs = replacements.borrow_and_update().clone();
        Self { inputs, replacements }
    }

    /// Returns the current variables.
    ///
    /// # Errors
    /// The name of an input that is not available.
    pub(super) fn now(&mut self) -> Result<EnvVars, String> {
        let mut variables = EnvVars::default();
        for (name, watch) in &mut self.inputs {
            match watch.current().availability {
                Availability::Unavailable { .. } => return Err(name.clone()),
                Availability::Available(provision) => match &*provision {
                    ProvidedEnv::Variable(variable, value) => variables.set(variable.clone(), value.clone()),
                    ProvidedEnv::Variables(several) => variables = variables.merged_with(several),
                    ProvidedEnv::File => {}
                },
            }
        }
        Ok(variables)
    }

    /// Waits until an input changes or the inputs are replaced.
    pub(super) async fn changed(&mut self) {
        let is_replaced = tokio::select! {
            () = any_changed(self.inputs.iter_mut().map(|(_, watch)| watch)) => false,
            changed = self.replacements.changed() => match changed {
                Ok(()) => true,
                // The sender is dropped only while the agent stops.
                Err(_) => std::future::pending().await,
            },
        };
        if is_replaced {
            self.inputs.clone_from(&self.replacements.borrow_and_update());
        }
    }
}
