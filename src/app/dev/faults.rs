//! `keyward dev break` and `heal`: faults of the emulated servers, what a user sees of each, and what ends it.

use anyhow::Context as _;
use clap::ValueEnum;
use http::Method;
use keyward_emulators::{cloud, platform, secrets};
use keyward_http::client::ServerAddress;
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use serde_json::Value;
use url::Url;

use super::{DevEndpoints, loopback_client};

/// A fault that can be switched on and off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// The emulated Vault accepts no connections
    Server,
    /// The emulated cloud accepts no connections
    Cloud,
    /// The clocks of the emulated cloud and Vault are an hour ahead
    Clock,
    /// The emulated cloud issues tokens for another audience
    Audience,
    /// The emulated Vault has revoked every token
    Token,
    /// The emulated HCP Terraform has revoked the platform token
    Platform,
}

/// A fault of one of the emulators.
#[derive(Debug)]
enum EmulatorFault {
    Cloud(cloud::Fault),
    Secrets(secrets::Fault),
    Platform(platform::Fault),
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 6] = [Self::Server, Self::Cloud, Self::Clock, Self::Audience, Self::Token, Self::Platform];

    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Cloud => "cloud",
            Self::Clock => "clock",
            Self::Audience => "audience",
            Self::Token => "token",
            Self::Platform => "platform",
        }
    }

    /// Returns the faults of the emulators that start it, or that end it.
    fn emulator_faults(self, on: bool) -> Vec<EmulatorFault> {
        let skew_seconds = if on { 3600 } else { 0 };
        match self {
            Self::Server => vec![EmulatorFault::Secrets(secrets::Fault::Away(on))],
            Self::Cloud => vec![EmulatorFault::Cloud(cloud::Fault::Refuse(on))],
            Self::Clock => vec![
                EmulatorFault::Cloud(cloud::Fault::Skew(skew_seconds)),
                EmulatorFault::Secrets(secrets::Fault::Skew(skew_seconds)),
            ],
            Self::Audience => {
                let audience = on.then(|| "api://another-application".to_owned());
                vec![EmulatorFault::Cloud(cloud::Fault::Audience(audience))]
            }
            Self::Token if on => vec![EmulatorFault::Secrets(secrets::Fault::RevokeAll)],
            Self::Token => Vec::new(),
            Self::Platform if on => vec![EmulatorFault::Platform(platform::Fault::RevokeAll)],
            Self::Platform => vec![EmulatorFault::Platform(platform::Fault::Rotate)],
        }
    }

    /// Returns true if the fault is on by the state of one of its emulators. Tokens are revoked once, which is no state.
    fn is_in(self, state: &Value) -> bool {
        match self {
            Self::Server => state["away"] == true,
            Self::Cloud => state["refusing"] == true,
            Self::Clock => state["skew_seconds"] != 0,
            Self::Audience => state["audience"].is_string(),
            Self::Token => false,
            Self::Platform => state["tokens"] == 0,
        }
    }

    /// Describes the fault, with commands and what they show, and its end.
    pub const fn guide(self) -> FaultGuide {
        match self {
            Self::Server => FaultGuide {
                broken: "the emulated Vault accepts no connections",
                observations: &[
                    (
                        "keyward token --session workload",
                        "served until the token expires, within a minute; then a 503 that names the reason",
                    ),
                    ("keyward check --online", "the step `tcp` fails, with a code for `keyward explain`"),
                    (
                        "keyward status",
                        "session workload is AT RISK; once its token expires, it is DOWN with its sink, and the template stays AT RISK",
                    ),
                ],
                end: "keyward dev heal server; keyward then logs in by itself, or at once after `keyward retry workload`",
                healed: "keyward notices by itself at its next try; this command has asked for one, and `keyward status` shows it",
            },
            Self::Cloud => FaultGuide {
                broken: "the emulated cloud accepts no connections",
                observations: &[
                    ("keyward login --session instance", "no identity token: the metadata service cannot be reached"),
                    ("keyward token --session instance", "served until the token expires, within two minutes"),
                    (
                        "keyward status",
                        "each session is AT RISK while its logins fail, and DOWN once its token expires",
                    ),
                ],
                end: "keyward dev heal cloud; keyward then logs in by itself, or at once after `keyward retry SESSION`",
                healed: BOTH_HEALED,
            },
            Self::Clock => FaultGuide {
                broken: "the clocks of the emulated cloud and Vault are an hour ahead",
                observations: &[
                    (
                        "keyward login --session workload",
                        "no login: the identity token is not valid yet, or the signature is too old; this clock is behind the cloud's",
                    ),
                    ("keyward status", "the sessions are AT RISK, and serve their tokens until these expire"),
                ],
                end: "keyward dev heal clock",
                healed: BOTH_HEALED,
            },
            Self::Audience => FaultGuide {
                broken: "the emulated cloud issues tokens for another audience",
                observations: &[
                    (
                        "keyward login --session workload",
                        "the server refuses the identity token, and keyward names the resource",
                    ),
                    ("keyward check --online", "the same for each session"),
                ],
                end: "keyward dev heal audience; on a real machine: the same `resource` at the server and in keyward",
                healed: BOTH_HEALED,
            },
            Self::Token => FaultGuide {
                broken: "the emulated Vault has revoked every token, so that of session workload is no longer valid",
                observations: &[
                    (
                        "keyward exec -- printenv GREETING",
                        "still the secret: the server refused the call, and keyward logged in and repeated it",
                    ),
                    ("keyward status", "session workload has logged in again"),
                ],
                end: "by itself: keyward logs in again at the next use of the token, or at its next check within 30 s",
                healed: "no action needed: keyward logs in again by itself, and `keyward status` shows it",
            },
            Self::Platform => FaultGuide {
                broken: "the emulated HCP Terraform has revoked the platform token",
                observations: &[
                    ("keyward check --online", "the step `platform token` fails"),
                    (
                        "keyward gateway tokens --organization example",
                        "waits for another platform token, and fails with a 503 after a minute; if you heal it meanwhile, the call \
                         succeeds",
                    ),
                ],
                end: "keyward dev heal platform, which writes a new token into the file; a waiting call then continues",
                healed: "the gateway reads the new platform token by itself; `keyward check --online` tries it",
            },
        }
    }
}

/// Messages about a fault.
#[derive(Debug, Clone, Copy)]
pub struct FaultGuide {
    /// Description of the fault.
    pub broken: &'static str,
    /// Commands, and what each shows now.
    pub observations: &'static [(&'static str, &'static str)],
    /// Condition or command that ends it.
    pub end: &'static str,
    /// The recovery after `keyward dev heal`.
    pub healed: &'static str,
}

/// Message after the end of a fault that affected both sessions.
pub const BOTH_HEALED: &str = "keyward logs in by itself at its next try; this command has asked for one, as `keyward retry instance` \
                                      and `keyward retry workload` do, and `keyward status` shows it";

/// Switches faults of a running `keyward dev`.
#[derive(Debug)]
pub struct FaultSwitch<'a> {
    endpoints: &'a DevEndpoints,
    key: SecretString,
}

impl<'a> FaultSwitch<'a> {
    /// Reads the key of the fault injection.
    pub fn new(endpoints: &'a DevEndpoints) -> anyhow::Result<Self> {
        Ok(Self { endpoints, key: secret::read_file(&endpoints.faults_key)? })
    }

    /// Switches a fault on.
    pub async fn start(&self, fault: Fault) -> anyhow::Result<()> {
        if let Some(reason) = self.endpoints.cloud.reason_against(fault) {
            anyhow::bail!("cannot break {}: {reason}", fault.name());
        }
        for fault in fault.emulator_faults(true) {
            self.inject(&fault).await?;
        }
        Ok(())
    }

    /// Switches a fault off. A new platform token goes into the file that the gateway reads.
    pub async fn heal(&self, fault: Fault) -> anyhow::Result<()> {
        for fault in fault.emulator_faults(false) {
            let response = self.inject(&fault).await?;
            if let EmulatorFault::Platform(platform::Fault::Rotate) = fault {
                let token = response["token"].as_str().context("the emulated HCP Terraform returned no token")?;
                super::write_private(&self.endpoints.platform_token, &token.into())?;
            }
        }
        Ok(())
    }

    /// Returns true if a fault is on that [`FaultSwitch::heal`] switches off.
    pub async fn is_on(&self, fault: Fault) -> anyhow::Result<bool> {
        for emulator_fault in fault.emulator_faults(false) {
            let state = self.call(Method::GET, self.endpoint(&emulator_fault), Vec::new()).await?;
            if fault.is_in(&state) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the URL of the emulator's fault injection.
    fn endpoint(&self, fault: &EmulatorFault) -> &str {
        match fault {
            EmulatorFault::Cloud(_) => &self.endpoints.cloud_faults,
            EmulatorFault::Secrets(_) => &self.endpoints.secrets_faults,
            EmulatorFault::Platform(_) => &self.endpoints.platform_faults,
        }
    }

    async fn inject(&self, fault: &EmulatorFault) -> anyhow::Result<Value> {
        let body = match fault {
            EmulatorFault::Cloud(fault) => serde_json::to_vec(fault),
            EmulatorFault::Secrets(fault) => serde_json::to_vec(fault),
            EmulatorFault::Platform(fault) => serde_json::to_vec(fault),
        };
        self.call(Method::POST, self.endpoint(fault), body?).await
    }

    async fn call(&self, method: Method, endpoint: &str, body: Vec<u8>) -> anyhow::Result<Value> {
        let mut url = Url::parse(endpoint).with_context(|| format!("{endpoint} is not an address"))?;
        let path = url.path().trim_matches('/').to_owned();
        url.set_path("/");
        let client = loopback_client(ServerAddress::Url(url))?;
        let request = client.request(method, &path).header("x-faults-key", self.key.expose_secret()).body(body);
        let response = client.send(request).await.context("keyward dev does not answer")?;
        anyhow::ensure!(response.status.is_success(), "the fault injection at {endpoint} answers {}", response.status);
        serde_json::from_slice(&response.body).context("the fault injection does not answer with JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_guide_whose_end_heals_it() {
        for fault in Fault::ALL {
            let guide = fault.guide();
            assert!(!fault.emulator_faults(true).is_empty() && !guide.observations.is_empty(), "{fault:?}");
            let heals = format!("keyward dev heal {}", fault.name());
            assert_eq!(guide.end.contains(&heals), !fault.emulator_faults(false).is_empty(), "{fault:?}");
            for text in [guide.end, guide.healed] {
                assert!(!text.contains("retry`"), "the sessions are two: {text}");
            }
            assert_eq!(
                fault.to_possible_value().map(|value| value.get_name().to_owned()),
                Some(fault.name().to_owned())
            );
        }
    }
}
