//! Ids and secrets of the emulated cloud, made at the first start.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::folder::Folder;
use super::{CloudStartError, Machine};

/// Who and what there is in the emulated cloud.
#[derive(Debug, Clone)]
pub struct CloudIdentities {
    /// The tenant.
    pub tenant: String,
    /// The subscription.
    pub subscription: String,
    /// The machine's own (system-assigned) identity.
    pub system: Identity,
    /// A user-assigned identity of the machine.
    pub user: Identity,
    /// The user-assigned identity that a service account of the emulated cluster is federated with.
    pub workload: Identity,
    /// A service principal with a client secret and a client certificate.
    pub application: Identity,
    /// The service principal's secret.
    pub client_secret: SecretString,
    /// What callers of the App Service endpoint send.
    pub identity_header: SecretString,
    /// What callers of the dials send.
    pub faults_key: SecretString,
}

/// An identity that tokens are issued to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its object id, `oid` in tokens.
    pub object_id: String,
    /// Its client id, `appid` in tokens.
    pub client_id: String,
}

impl CloudIdentities {
    /// The machine's resource group.
    pub const RESOURCE_GROUP: &str = "keyward-dev";
    /// The virtual machine's name.
    pub const VM: &str = "keyward-vm";
    /// The scale set's name.
    pub const SCALE_SET: &str = "keyward-set";
    /// The app's name.
    pub const APP: &str = "keyward-app";
    /// The subject of the projected token.
    pub const SERVICE_ACCOUNT: &str = "system:serviceaccount:default:keyward";

    pub(super) fn load_or_make(folder: &Folder) -> Result<Self, CloudStartError> {
        let broken = || CloudStartError::Key { what: "ids.json" };
        let content = folder.read_or_make("ids.json", || {
            let made = Stored::make().ok_or(CloudStartError::Key { what: "random secrets" })?;
            serde_json::to_vec_pretty(&made).map_err(|_| broken())
        })?;
        let stored: Stored = serde_json::from_slice(&content).map_err(|_| broken())?;
        Ok(stored.into())
    }

    /// Resource id of the machine.
    pub(super) fn machine_id(&self, machine: Machine) -> String {
        let (subscription, group) = (&self.subscription, Self::RESOURCE_GROUP);
        let providers = format!("/subscriptions/{subscription}/resourcegroups/{group}/providers");
        match machine {
            Machine::VirtualMachine => format!("{providers}/Microsoft.Compute/virtualMachines/{}", Self::VM),
            Machine::ScaleSet => format!("{providers}/Microsoft.Compute/virtualMachineScaleSets/{}", Self::SCALE_SET),
            Machine::App => format!("{providers}/Microsoft.Web/sites/{}", Self::APP),
        }
    }

    /// Resource id of a user-assigned identity.
    pub(super) fn identity_id(&self, name: &str) -> String {
        let (subscription, group) = (&self.subscription, Self::RESOURCE_GROUP);
        format!(
            "/subscriptions/{subscription}/resourcegroups/{group}/providers/Microsoft.ManagedIdentity\
             /userAssignedIdentities/{name}"
        )
    }
}

/// The file's shape.
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
    #[serde(rename = "dials_key")]
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

/// 256 random bits as text.
pub(super) fn random_secret() -> Option<String> {
    let mut bytes = [0_u8; 32];
    rand::fill(&mut bytes).ok()?;
    Some(URL_SAFE_NO_PAD.encode(bytes))
}
