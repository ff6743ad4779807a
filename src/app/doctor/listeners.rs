//! Checks of the addresses that are listened on: free, or held by the running agent. Nothing listens meanwhile.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use keyward_http::server::Endpoint;
use keyward_machine::os;
use keyward_telemetry::error_code::ErrorCode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::rights::UserIdentity;
use super::running_agent::AgentProcess;
use super::sockets::{self, ListeningSocket, Process};
use crate::check_result::{Problem, StepResult};

/// User, agent and passed sockets that listeners are compared with.
#[derive(Debug)]
pub(crate) struct ListenerChecker<'a> {
    /// The agent's user.
    pub identity: &'a UserIdentity,
    /// The running agent's process.
    pub agent: AgentProcess,
    /// Names of the sockets that the service manager passes; `None` without a unit.
    pub passed: Option<&'a [String]>,
}

impl ListenerChecker<'_> {
    /// Checks one address.
    pub(crate) fn check(&self, endpoint: &Endpoint) -> StepResult {
        match endpoint {
            Endpoint::Tcp(address) => self.check_tcp(*address),
            Endpoint::Unix(socket) => self.check_unix(&socket.path),
            Endpoint::Activated(name) => self.check_passed(name),
        }
    }

    fn check_tcp(&self, address: SocketAddr) -> StepResult {
        if address.port() == 0 {
            return Ok(format!("{address}: any free port"));
        }
        let error = match bind(address) {
            Ok(()) => return Ok(format!("{address} is free")),
            Err(error) => error,
        };
        match error {
            Errno::ADDRINUSE => self.check_holders(address, &sockets::holders(&listening(), address)),
            Errno::ADDRNOTAVAIL => {
                let message = format!("{address} is not an address of this machine");
                Err(Problem::new(ErrorCode::AddressUnavailable, message).with_remedy("ip address"))
            }
            Errno::ACCESS if self.identity.uid == rustix::process::geteuid().as_raw() => {
                Err(Problem::new(ErrorCode::BindDenied, format!("{address}: the system does not let this user listen")))
            }
            Errno::ACCESS => Err(Problem::skipped(format!("{address}: run keyward doctor as root to try it"))),
            error => Err(Problem::new(None, format!("{address}: {}", io::Error::from(error)))),
        }
    }

    fn check_holders(&self, address: SocketAddr, holders: &[ListeningSocket]) -> StepResult {
        let is_agents = |socket: &ListeningSocket| match self.agent {
            AgentProcess::NotRunning | AgentProcess::NotAsked => false,
            AgentProcess::Id(pid) => sockets::has_socket(pid, socket.inode).unwrap_or(socket.uid == self.identity.uid),
            AgentProcess::Unknown => socket.uid == self.identity.uid,
        };
        if self.agent != AgentProcess::NotRunning && holders.iter().all(is_agents) {
            return Ok(format!("{address} is held by the running agent"));
        }
        let user = holders.first().map(|socket| {
            let name = os::user_entry(&socket.uid.to_string()).ok().flatten().map(|user| user.0);
            format!(" of user {}", name.unwrap_or_else(|| socket.uid.to_string()))
        });
        let user = user.unwrap_or_default();
        let fix = format!("ss -ltnp 'sport = :{}'", address.port());
        if self.agent == AgentProcess::NotAsked {
            let inodes: Vec<u64> = holders.iter().map(|socket| socket.inode).collect();
            return check_processes(&address.to_string(), &user, &sockets::with_sockets(&inodes), fix);
        }
        Err(Problem::new(ErrorCode::AddressInUse, format!("{address} is held by another process{user}"))
            .with_remedy(fix))
    }

    fn check_unix(&self, path: &Path) -> StepResult {
        let path_text = path.display();
        match path.symlink_metadata() {
            Err(_) => return Ok(format!("{path_text} is free")),
            Ok(metadata) if !metadata.file_type().is_socket() => {
                let message = format!("{path_text} exists and is not a socket");
                return Err(Problem::new(ErrorCode::SocketPath, message).with_remedy(format!("rm {path_text}")));
            }
            Ok(_) => {}
        }
        match UnixStream::connect(path) {
            Ok(stream) => {
                let holder = rustix::net::sockopt::socket_peercred(&stream).ok();
                let holder = holder.and_then(|peer| u32::try_from(peer.pid.as_raw_nonzero().get()).ok());
                let fix = format!("ss -lxp 'src = {path_text}'");
                if self.agent == AgentProcess::NotAsked {
                    let holder: Vec<Process> = holder.and_then(sockets::with_id).into_iter().collect();
                    return check_processes(&path_text.to_string(), "", &holder, fix);
                }
                let is_agents = match self.agent {
                    AgentProcess::NotRunning | AgentProcess::NotAsked => false,
                    AgentProcess::Unknown => true,
                    AgentProcess::Id(pid) => holder == Some(pid),
                };
                if is_agents {
                    return Ok(format!("{path_text} is held by the running agent"));
                }
                let process = holder.map(|pid| format!(" {pid}")).unwrap_or_default();
                let message = format!("{path_text} is held by another process{process}");
                Err(Problem::new(ErrorCode::AddressInUse, message).with_remedy(fix))
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(Problem::skipped(format!("{path_text}: run keyward doctor as root to try it")))
            }
            Err(_) => Ok(format!("{path_text} was left by an earlier process, and is replaced")),
        }
    }

    fn check_passed(&self, name: &str) -> StepResult {
        match self.passed {
            None => Err(Problem::skipped(format!(
                "the service manager passes the socket {name}; there is no unit to check"
            ))),
            Some(names) if names.iter().any(|passed_name| passed_name == name) => {
                Ok(format!("a socket unit passes {name}"))
            }
            Some(_) => {
                let message = format!("no socket unit of the service has FileDescriptorName={name}");
                let fix = "install and enable one, as packaging/systemd/keyward.socket is: systemctl enable --now keyward.socket";
                Err(Problem::new(ErrorCode::UnitSettings, message).with_remedy(fix))
            }
        }
    }
}

/// Checks which process holds an address if no agent can be asked for its own addresses.
fn check_processes(address: &str, user: &str, holders: &[Process], fix: String) -> StepResult {
    if let Some(Process { id, program, .. }) = holders.iter().find(|process| process.is_keyward) {
        return Ok(format!("{address} is held by {program}, process {id}"));
    }
    let Some(Process { id, program, .. }) = holders.first() else {
        return Err(Problem::skipped(format!(
            "{address} is held by a process{user} that this user cannot see; run keyward doctor as root"
        )));
    };
    let message = format!("{address} is held by {program}, process {id}{user}");
    Err(Problem::new(ErrorCode::AddressInUse, message).with_remedy(fix))
}

/// Binds without listening, so that nobody can connect, and closes the socket.
fn bind(address: SocketAddr) -> Result<(), Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // As the listener does: connections that linger do not conflict.
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)
}

fn listening() -> Vec<ListeningSocket> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().flat_map(|path| sockets::parse(&read(path))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check_result::{CheckStatus, Progress, Steps};

    #[test]
    fn an_address_of_an_agent_that_cannot_be_asked_is_checked_by_the_program_that_holds_it() {
        let process = |program: &str| Process { id: 7, program: program.to_owned(), is_keyward: program == "keyward" };
        let check = |holders: &[Process], expected: (CheckStatus, &str)| {
            let mut steps = Steps::new("listener", None, &Progress::default());
            steps.record("address", check_processes("127.0.0.1:8500", " of user root", holders, "ss".to_owned()));
            let results = steps.into_results();
            assert_eq!((results[0].status, results[0].message.as_str()), expected);
        };
        check(
            &[process("systemd"), process("keyward")],
            (CheckStatus::Ok, "127.0.0.1:8500 is held by keyward, process 7"),
        );
        let other = "127.0.0.1:8500 is held by consul, process 7 of user root";
        check(&[process("consul")], (CheckStatus::Failed, other));
        let unseen =
            "127.0.0.1:8500 is held by a process of user root that this user cannot see; run keyward doctor as root";
        check(&[], (CheckStatus::Skipped, unseen));
    }
}
