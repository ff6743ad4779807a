//! SPIFFE's Workload API as a program on grpc-go and SPIFFE's own messages serves it (`tests/clients/go-spiffe`).

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::binary::eventually;
use crate::acl::third_party_clients::clients;

/// A running Workload API.
pub(crate) struct WorkloadApi {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    folder: tempfile::TempDir,
}

impl Drop for WorkloadApi {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl WorkloadApi {
    /// Starts it at a socket of its own, with two identities.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Command::new(clients().join("bin/go-spiffe"))
            .args(["agent.sock", "key.pem", "authorities.pem"].map(|name| folder.path().join(name)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let api = Self { process, input, output, folder };
        eventually(Duration::from_secs(10), || {
            std::os::unix::net::UnixStream::connect(api.socket()).map(drop).map_err(|error| error.to_string())
        });
        api
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("agent.sock")
    }

    /// Changes its state, and waits until that is done.
    pub(crate) fn set(&mut self, state: &str) {
        writeln!(self.input, "{state}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), state);
    }

    /// Path of the file with the authorities of its certificates.
    pub(crate) fn authorities(&self) -> PathBuf {
        self.folder.path().join("authorities.pem")
    }

    /// Path of the file with the key that verifies its tokens.
    pub(crate) fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }
}
