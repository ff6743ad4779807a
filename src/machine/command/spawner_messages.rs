//! Messages between the agent and its spawner: frames of a length (four bytes, little-endian) and JSON. The first one of the agent
//! has the programs that the spawner may run, the configuration's files, and the variables that the agent was started with.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Programs that a configuration has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfiguredPrograms {
    /// Command lines: program and arguments.
    pub commands: BTreeSet<Vec<String>>,
    /// Names of variables whose values the agent sets.
    pub variables: BTreeSet<String>,
}

/// Number that the agent gives to a child process.
pub(super) type ChildId = u64;

/// Request of the agent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Starts a program. The values of the variables may be secrets.
    Start { id: ChildId, command: Vec<String>, variables: Variables, input: bool },
    /// Sends a signal to the process only.
    Signal { id: ChildId, signal: i32 },
    /// Kills the process group.
    Kill { id: ChildId },
}

/// Environment of a program; `Debug` shows names only.
#[derive(Serialize, Deserialize)]
pub(super) struct Variables(pub(super) BTreeMap<String, String>);

impl std::fmt::Debug for Variables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Reply of the spawner.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The program runs.
    Started { id: ChildId, pid: u32 },
    /// The program was not started.
    Failed { id: ChildId, error: SystemError },
    /// The process has ended with this wait status, or waiting for it failed.
    Ended { id: ChildId, status: Result<i32, SystemError> },
}

/// An error of the system in another process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SystemError {
    number: Option<i32>,
    text: String,
}

impl From<&io::Error> for SystemError {
    fn from(error: &io::Error) -> Self {
        Self { number: error.raw_os_error(), text: error.to_string() }
    }
}

impl From<SystemError> for io::Error {
    fn from(error: SystemError) -> Self {
        error.number.map_or_else(|| Self::other(error.text), Self::from_raw_os_error)
    }
}

/// Largest frame in bytes: the kernel takes at most 6 MiB of arguments and variables (`execve(2)`), which JSON may escape.
const MAX_FRAME: usize = 48 * 1024 * 1024;

/// Encodes a message as a frame.
pub(super) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message).map_err(io::Error::other)?;
    let length = frame.len() - 4;
    let prefix = u32::try_from(length).ok().filter(|_| length <= MAX_FRAME);
    let prefix = prefix.ok_or_else(|| io::Error::from_raw_os_error(rustix::io::Errno::TOOBIG.raw_os_error()))?;
    frame[..4].copy_from_slice(&prefix.to_le_bytes());
    Ok(frame)
}

/// Reads the next message; `None` at the end of the stream.
pub(super) async fn receive<M: DeserializeOwned>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<M>> {
    let mut prefix = [0; 4];
    match stream.read_exact(&mut prefix).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    };
    let length = usize::try_from(u32::from_le_bytes(prefix)).unwrap_or(usize::MAX);
    if length > MAX_FRAME {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    serde_json::from_slice(&body).map(Some).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Writes the frames of a queue until the queue ends or the stream breaks.
pub(super) async fn write_frames(
    mut stream: impl AsyncWrite + Unpin,
    mut frames: tokio::sync::mpsc::UnboundedReceiver<Vec<u8>>,
) {
    while let Some(frame) = frames.recv().await {
        if stream.write_all(&frame).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_message_is_read_as_it_was_written_and_a_broken_one_is_an_error() {
        let value = "a\n\"b\"".to_owned();
        let variables = Variables([("NAME".to_owned(), value)].into());
        let request = Request::Start { id: 7, command: vec!["/bin/true".to_owned()], variables, input: true };
        assert!(!format!("{request:?}").contains("\"b"), "a value is shown");
        let frame = encode(&request).unwrap();
        let read = receive::<Request>(&mut &frame[..]).await.unwrap().unwrap();
        let Request::Start { id: 7, command, variables, input: true } = read else { panic!("{read:?}") };
        assert_eq!((command.len(), variables.0["NAME"].as_str()), (1, "a\n\"b\""));
        assert!(receive::<Request>(&mut &b""[..]).await.unwrap().is_none());
        let check = async |bytes: &[u8], expected| {
            let error = receive::<Request>(&mut &*bytes).await.unwrap_err();
            assert_eq!(error.kind(), expected, "{bytes:?}");
        };
        check(&frame[..frame.len() - 1], io::ErrorKind::UnexpectedEof).await;
        check(&[1, 0, 0, 0, b'x'], io::ErrorKind::InvalidData).await;
        check(&[255, 255, 255, 255], io::ErrorKind::InvalidData).await;
    }

    #[test]
    fn an_error_of_the_system_keeps_its_number() {
        let check = |error: io::Error| {
            let received = io::Error::from(SystemError::from(&error));
            assert_eq!((received.kind(), received.to_string()), (error.kind(), error.to_string()));
        };
        check(io::Error::from_raw_os_error(2));
        check(io::Error::from_raw_os_error(13));
        check(io::Error::other("something"));
    }
}
