//! Ids and secrets of the emulated cloud, generated at the first start.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keyward_machine::secret_string::SecretString;
use serde::{Deserialize, Serialize};

use super::folder::PrivateDir;
use super::{MachineKind, StartError};

/// Tenant, subscription and identities of the emulated cloud.
#[derive(Debug, Clone)]
pub struct CloudIdentities {
    /// Tenant id.
    pub tenant: String,
    /// Subscription id.
    pub subscription: String,
    /// System-assigned identity of the machine.
    pub system: Identity,
    /// User-assigned identity of the machine.
    pub user: Identity,
    /// User-assigned identity that is federated with a service account of the emulated cluster.
    pub workload: Identity,
    /// Service principal with a client secret and a client certificate.
    pub application: Identity,
    /// Secret of the service principal.
    pub client_secret: SecretString,
    /// Value of `X-IDENTITY-HEADER` for the App Service endpoint.
    pub(crate) identity_header: SecretString,
    /// Key of the fault injection over HTTP.
    pub(crate) faults_key: SecretString,
}

/// An identity that tokens are issued to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Object id, `oid` in tokens.
    pub object_id: String,
    /// Client id, `appid` in tokens.
    pub client_id: String,
}

impl CloudIdentities {
    /// Resource group of the machine.
    pub const RESOURCE_GROUP: &str = "keyward-dev";
    /// Name of the virtual machine.
    pub const VM: &str = "keyward-vm";
    /// Name of the scale set.
    pub const SCALE_SET: &str = "keyward-set";
    /// Name of the app.
    pub(crate) const APP: &str = "keyward-app";
    /// Subject of the projected token.
    pub(crate) const SERVICE_ACCOUNT: &str = "system:serviceaccount:default:keyward";

    pub(super) fn load_or_make(folder: &PrivateDir) -> Result<Self, StartError> {
        let broken = || StartError::Key { what: "ids.json" };
        let content = folder.read_or_make("ids.json", || {
            let stored = Stored::make().ok_or(StartError::Key { what: "random secrets" })?;
            serde_json::to_vec_pretty(&stored).map_err(|_| broken())
        })?;
        let stored: Stored = serde_json::from_slice(&content).map_err(|_| broken())?;
        Ok(stored.into())
    }

    /// Returns the resource id of the machine.
    pub(super) fn machine_id(&self, machine: MachineKind) -> String {
        let subscription = &self.subscription;
        let group = Self::RESOURCE_GROUP;
        let providers = format!("/subscriptions/{subscription}/resourcegroups/{group}/providers");
        match machine {
            MachineKind::VirtualMachine => format!("{providers}/Microsoft.Compute/virtualMachines/{}", Self::VM),
            MachineKind::ScaleSet => {
                format!("{providers}/Microsoft.Compute/virtualMachineScaleSets/{}", Self::SCALE_SET)
            }
            MachineKind::App => format!("{providers}/Microsoft.Web/sites/{}", Self::APP),
        }
    }

    /// Returns the resource id of the machine's user-assigned identity.
    pub(super) fn user_identity_id(&self) -> String {
        self.identity_id("keyward-user")
    }

    /// Returns the resource id of a user-assigned identity.
    pub(super) fn identity_id(&self, name: &str) -> String {
        let subscription = &self.subscription;
        let group = Self::RESOURCE_GROUP;
        format!(
            "/subscriptions/{subscription}/resourcegroups/{group}/providers/Microsoft.ManagedIdentity\
             /userAssignedIdentities/{name}"
        )
    }
}

/// Format of the file; its field names are fixed.
#[derive(Serialize, Deserialize)]
struct Stored {
    tenant: String,
    subscription: String,
    system: Identity,
    user: Identity,
    workload: Identity,
    application: Identity,
    client_secret: String,
    identity_header: String,
    faults_key: String,
}

impl Stored {
    fn make() -> Option<Self> {
        let id = || uuid::Uuid::new_v4().to_string();
        let identity = || Identity { object_id: id(), client_id: id() };
        Some(Self {
            tenant: id(),
            subscription: id(),
            system: identity(),
            user: identity(),
            workload: identity(),
            application: identity(),
            client_secret: random_secret()?,
            identity_header: random_secret()?,
            faults_key: random_secret()?,
        })
    }
}

impl From<Stored> for CloudIdentities {
    fn from(stored: Stored) -> Self {
        Self {
            tenant: stored.tenant,
            subscription: stored.subscription,
            system: stored.system,
            user: stored.user,
            workload: stored.workload,
            application: stored.application,
            client_secret: stored.client_secret.into(),
            identity_header: stored.identity_header.into(),
            faults_key: stored.faults_key.into(),
        }
    }
}

/// Generates 256 random bits as text.
pub(super) fn random_secret() -> Option<String> {
    let mut bytes = [0_u8; 32];
    rand::fill(&mut bytes).ok()?;
    Some(URL_SAFE_NO_PAD.encode(bytes))
}
