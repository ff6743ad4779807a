//! A gateway in front of an emulated platform, as a separate process.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::binary::{Binary, eventually, run};
use crate::harness::platform::Emulated;
use crate::harness::ports;

/// The gateway, its folder, and where it answers. The tests that use it run on more than one thread: it is waited for.
pub(crate) struct GatewayProcess {
    pub(crate) url: String,
    folder: tempfile::TempDir,
    binary: Option<Binary>,
}

/// The clients make tokens of all kinds.
const EXEMPT: &str = "\"organizations/authentication-token\", \"teams/authentication-token\", \
                      \"teams/authentication-tokens\", \"users/authentication-tokens\"";

impl GatewayProcess {
    /// Starts it with the platform's first token, and with a mode for deprecated calls.
    pub(crate) fn start(it: &Emulated, deprecated: &str) -> Self {
        let address = ports::reserve();
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().display();
        let text = format!(
            "[gateway]\nupstream = \"{}\"\nlisten = \"tcp://{address}\"\nthreads = 2\ntoken_file = \"{here}/platform.token\"\n\
             local_token_file = \"{here}/local.token\"\ndeprecated = \"{deprecated}\"\nexempt = [{EXEMPT}]\n",
            it.platform.url()
        );
        std::fs::write(folder.path().join("keyward.toml"), text).unwrap();
        let mut beside = Self { url: format!("http://{address}"), folder, binary: None };
        beside.put(it.token());
        beside.binary = Some(beside.serve());
        beside
    }

    fn serve(&self) -> Binary {
        let config = self.folder.path().join("keyward.toml").display().to_string();
        let binary = Binary::start(&["run", "--config", &config], &[], self.folder.path());
        let address = self.url.replace("http://", "");
        // The port was free a moment ago: another process may have taken it, or a connection may be to itself.
        eventually(Duration::from_secs(30), || {
            let token = self.folder.path().join("local.token").exists();
            let responses = token && std::net::TcpStream::connect(&address).is_ok();
            responses.then_some(()).ok_or_else(|| binary.output())
        });
        binary
    }

    /// Puts a platform token where the gateway reads it.
    pub(crate) fn put(&self, token: &str) {
        std::fs::write(self.folder.path().join("next"), token).unwrap();
        std::fs::rename(self.folder.path().join("next"), self.folder.path().join("platform.token")).unwrap();
    }

    /// The configuration's file.
    pub(crate) fn config(&self) -> String {
        self.folder.path().join("keyward.toml").display().to_string()
    }

    /// The local token that callers send.
    pub(crate) fn local(&self) -> String {
        let file = std::fs::read_to_string(self.folder.path().join("local.token"));
        file.unwrap().trim().to_owned()
    }

    /// Counts of `keyward gateway report` for the calls that were replaced on 2021-06-8: all calls, and those that the
    /// gateway replaced.
    pub(crate) fn reported(&self) -> (u64, u64) {
        let config = self.folder.path().join("keyward.toml").display().to_string();
        let (code, stdout, stderr) = run(&["gateway", "report", "--config", &config, "--format", "json"], &[]);
        assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
        let report: Value = serde_json::from_str(&stdout).unwrap();
        let calls = report["calls"].as_array().unwrap().iter();
        let old = calls.filter(|call| call["resource"] == "registry-modules" && call["replacement"].is_string());
        old.fold((0, 0), |(calls, replaced), call| {
            (calls + call["calls"].as_u64().unwrap(), replaced + call["replaced"].as_u64().unwrap())
        })
    }

    /// A new platform token in the file; then the one before ends. Gives the new one's id.
    pub(crate) fn rotate(&self, it: &Emulated) -> String {
        let next = it.platform.faults().mint("next");
        self.put(next.token.expose_secret());
        assert!(it.platform.faults().revoke(&it.first.id));
        next.id
    }

    /// Kills it, and starts another at the same address.
    pub(crate) fn restart(&mut self) {
        if let Some(binary) = self.binary.take() {
            binary.signal(Signal::KILL);
        }
        self.binary = Some(self.serve());
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.binary.as_ref().unwrap().id()
    }

    /// Output of the process.
    pub(crate) fn output(&self) -> String {
        self.binary.as_ref().unwrap().output()
    }
}
