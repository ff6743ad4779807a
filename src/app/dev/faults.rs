//! `keyward dev break` and `heal`: faults of the emulated servers, what a user sees of each, and what ends it.

use anyhow::Context as _;
use clap::ValueEnum;
use http::Method;
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
    /// The emulated Azure accepts no connections
    Cloud,
    /// The clocks of the emulated Azure and Vault are an hour ahead
    Clock,
    /// The emulated Azure issues tokens for another audience
    Audience,
    /// The emulated Vault has revoked every token
    Token,
    /// The emulated HCP Terraform has revoked the platform token
    Platform,
}

/// An emulator with fault injection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Emulator {
    Cloud,
    Secrets,
    Platform,
}

/// One call of the fault injection: a path, and its query.
type Call = (Emulator, &'static str, &'static [(&'static str, &'static str)]);

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

    const fn start_calls(self) -> &'static [Call] {
        match self {
            Self::Server => &[(Emulator::Secrets, "away", &[("on", "true")])],
            Self::Cloud => &[(Emulator::Cloud, "refuse", &[("on", "true")])],
            Self::Clock => &[
                (Emulator::Cloud, "skew", &[("seconds", "3600")]),
                (Emulator::Secrets, "skew", &[("seconds", "3600")]),
            ],
            Self::Audience => &[(Emulator::Cloud, "audience", &[("value", "api://another-application")])],
            Self::Token => &[(Emulator::Secrets, "revoke-all", &[])],
            Self::Platform => &[(Emulator::Platform, "revoke-all", &[])],
        }
    }

    const fn stop_calls(self) -> &'static [Call] {
        match self {
            Self::Server => &[(Emulator::Secrets, "away", &[("on", "false")])],
            Self::Cloud => &[(Emulator::Cloud, "refuse", &[("on", "false")])],
            Self::Clock => {
                &[(Emulator::Cloud, "skew", &[("seconds", "0")]), (Emulator::Secrets, "skew", &[("seconds", "0")])]
            }
            Self::Audience => &[(Emulator::Cloud, "audience", &[])],
            Self::Token => &[],
            Self::Platform => &[(Emulator::Platform, "rotate", &[])],
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
                        "within 40 s session workload is AT RISK; once its token expires, it is DOWN with its sink, and the template stays AT RISK",
                    ),
                ],
                end: "keyward dev heal server; keyward then logs in by itself, or at once after `keyward retry workload`",
                healed: "keyward logs in by itself; `keyward retry workload` does it now, and `keyward status` shows it",
            },
            Self::Cloud => FaultGuide {
                broken: "the emulated Azure accepts no connections",
                observations: &[
                    ("keyward login --session instance", "no identity token: the metadata service cannot be reached"),
                    ("keyward token --session instance", "served until the token expires, within two minutes"),
                    (
                        "keyward status",
                        "each session fails at its next login: instance within two minutes, workload within five",
                    ),
                ],
                end: "keyward dev heal cloud; keyward then logs in by itself, or at once after `keyward retry SESSION`",
                healed: BOTH_HEALED,
            },
            Self::Clock => FaultGuide {
                broken: "the clocks of the emulated Azure and Vault are an hour ahead",
                observations: &[
                    (
                        "keyward login --session workload",
                        "keyward does not send the identity token: it is not valid yet, so this clock is behind the cloud's",
                    ),
                    ("keyward status", "the sessions fail at their next login, and serve their tokens until then"),
                ],
                end: "keyward dev heal clock",
                healed: BOTH_HEALED,
            },
            Self::Audience => FaultGuide {
                broken: "the emulated Azure issues tokens for another audience",
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
pub const BOTH_HEALED: &str = "keyward logs in by itself; `keyward retry instance` and `keyward retry workload` do it now, and \
                                      `keyward status` shows it";

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
        for call in fault.start_calls() {
            self.call(*call).await?;
        }
        Ok(())
    }

    /// Switches a fault off. A new platform token goes into the file that the gateway reads.
    pub async fn heal(&self, fault: Fault) -> anyhow::Result<()> {
        for call in fault.stop_calls() {
            let response = self.call(*call).await?;
            if fault == Fault::Platform {
                super::write_private(&self.endpoints.platform_token, &response)?;
            }
        }
        Ok(())
    }

    /// Returns true if a fault is on that [`FaultSwitch::heal`] switches off.
    pub async fn is_on(&self, fault: Fault) -> anyhow::Result<bool> {
        for (emulator, ..) in fault.stop_calls() {
            let response = self.request(Method::GET, (*emulator, "", &[])).await?;
            let state =
                serde_json::from_str(response.expose_secret()).context("the state of the faults is not JSON")?;
            if fault.is_in(&state) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn call(&self, call: Call) -> anyhow::Result<SecretString> {
        self.request(Method::POST, call).await
    }

    async fn request(&self, method: Method, (emulator, path, query): Call) -> anyhow::Result<SecretString> {
        let base = match emulator {
            Emulator::Cloud => &self.endpoints.cloud_faults,
            Emulator::Secrets => &self.endpoints.secrets_faults,
            Emulator::Platform => &self.endpoints.platform_faults,
        };
        let mut url = Url::parse(base).with_context(|| format!("{base} is not an address"))?;
        let folder = url.path().trim_matches('/').to_owned();
        url.set_path("/");
        let client = loopback_client(ServerAddress::Url(url))?;
        let target = format!("{folder}/{path}");
        let request = client.request(method, target.trim_end_matches('/')).query(query);
        let response = client.send(request.header("x-faults-key", self.key.expose_secret())).await;
        let response = response.context("keyward dev does not answer")?;
        anyhow::ensure!(
            response.status.is_success(),
            "the fault injection at {base}/{path} answers {}",
            response.status
        );
        Ok(SecretString::from(String::from_utf8_lossy(&response.body).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_guide_whose_end_heals_it() {
        for fault in Fault::ALL {
            let guide = fault.guide();
            assert!(!fault.start_calls().is_empty() && !guide.observations.is_empty(), "{fault:?}");
            let heals = format!("keyward dev heal {}", fault.name());
            assert_eq!(guide.end.contains(&heals), !fault.stop_calls().is_empty(), "{fault:?}");
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
