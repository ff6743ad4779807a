//! `keyward gateway serve` in front of an emulated platform, as a process of its own.

use std::net::TcpListener;
use std::time::Duration;

use rustix::process::Signal;
use secrecy::ExposeSecret as _;

use crate::harness::binary::{Binary, eventually};
use crate::harness::platform::Emulated;

/// The gateway, its folder, and where it answers. The tests that use it run on more than one thread: it is waited for.
pub(crate) struct Beside {
    pub(crate) url: String,
    folder: tempfile::TempDir,
    upstream: String,
    more: Vec<String>,
    binary: Option<Binary>,
}

impl Beside {
    /// Starts it with the platform's first token, and with more arguments.
    pub(crate) fn start(it: &Emulated, more: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut beside = Self {
            url: format!("http://127.0.0.1:{port}"),
            folder: tempfile::tempdir().unwrap(),
            upstream: it.platform.url().to_owned(),
            more: more.iter().map(|&text| text.to_owned()).collect(),
            binary: None,
        };
        beside.put(it.token());
        beside.binary = Some(beside.serve());
        beside
    }

    fn serve(&self) -> Binary {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let (token, dir, listen) = (path("platform.token"), path("state"), self.url.replace("http://", ""));
        let args = ["gateway", "serve", "--upstream", &self.upstream, "--token-file", &token, "--listen", &listen];
        let more = self.more.iter().map(String::as_str);
        let args: Vec<&str> = args.into_iter().chain(["--dir", &dir]).chain(more).collect();
        let binary = Binary::start(&args, &[], self.folder.path());
        eventually(Duration::from_secs(20), || {
            std::net::TcpStream::connect(&listen).map(drop).map_err(|_| binary.output())
        });
        binary
    }

    /// Puts a platform token where the gateway reads it.
    fn put(&self, token: &str) {
        std::fs::write(self.folder.path().join("next"), token).unwrap();
        std::fs::rename(self.folder.path().join("next"), self.folder.path().join("platform.token")).unwrap();
    }

    /// What callers bring.
    pub(crate) fn local(&self) -> String {
        let files = std::fs::read_dir(self.folder.path().join("state")).unwrap();
        let mut files =
            files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "token"));
        std::fs::read_to_string(files.next().unwrap()).unwrap().trim().to_owned()
    }

    /// A new platform token in the file; then the one before ends. Gives the new one's id.
    pub(crate) fn rotate(&self, it: &Emulated) -> String {
        let next = it.platform.dials().mint("next");
        self.put(next.token.expose_secret());
        assert!(it.platform.dials().revoke(&it.first.id));
        next.id
    }

    /// Kills it, and starts another at the same address.
    pub(crate) fn restart(&mut self) {
        if let Some(binary) = self.binary.take() {
            binary.signal(Signal::KILL);
        }
        self.binary = Some(self.serve());
    }

    /// What it said.
    pub(crate) fn output(&self) -> String {
        self.binary.as_ref().unwrap().output()
    }
}
