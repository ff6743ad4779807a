//! Starts with other clocks than the last one had: a time namespace sets those that count from the boot of the machine.

use std::process::Command;
use std::time::Duration;

use keyward_emulators::secrets::{Operation, Role};

use super::case::{Case, Setup, case, token};
use super::record::not_run;
use crate::harness::binary::{Binary, eventually};
use crate::harness::chaos::Fault;

/// Life of a token: longer than a start takes.
const LEASE: Duration = Duration::from_secs(20);

/// Seconds since the boot, as a program sees them in a time namespace with this offset; an error if there is none.
fn uptime(offset: i64) -> Result<i64, String> {
    let offset = offset.to_string();
    let arguments = ["--time", "--boottime", &offset, "--monotonic", &offset, "cat", "/proc/uptime"];
    let root = rustix::process::geteuid().is_root();
    let user: &[&str] = if root { &[] } else { &["--user", "--map-root-user"] };
    let output = Command::new("unshare").args(user).args(arguments).output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let seconds = text.split('.').next().and_then(|text| text.parse().ok());
    seconds.ok_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// Starts the agent where the clocks that count from the boot are ahead by so many seconds.
fn start_at(case: &mut Case, offset: i64) {
    let config = case.path("keyward.toml").display().to_string();
    let setup = format!("exec unshare --time --boottime {offset} --monotonic {offset} \"$0\" \"$@\"");
    case.agent = Some(Binary::start_after(&setup, &["run", "--config", &config], &[], case.folder.path()));
    case.until_ready();
    case.expect(|expected| expected.serves = true);
}

fn served(case: &Case) -> String {
    let (status, body) = case.ask("/agent/v1/token").unwrap();
    token(status, &body).unwrap_or_else(|| panic!("{status}: {body}"))
}

#[test]
fn f37_a_start_after_a_boot_or_years_later_takes_the_saved_token_until_its_own_end() {
    let (hours, years) = (7200, 400 * 86_400);
    match (uptime(0), uptime(years)) {
        (Ok(now), Ok(later)) if later - now >= years => {}
        other => return not_run("F37", &format!("no time namespace can be entered: {other:?}")),
    }
    // Most of the time since the boot is gone, as after another boot.
    let back = -(uptime(0).unwrap() - 30).max(1);
    case("F37", |case| {
        case.ready(&Setup { role: Role { ttl: LEASE, max_ttl: None, ..Role::default() }, ..Setup::default() });
        let first = served(case);
        case.inject(|_| ());
        for offset in [hours, 0, years, back] {
            case.expect(|expected| (expected.up, expected.serves) = (false, false));
            case.agent = None;
            start_at(case, offset);
            assert_eq!(served(case), first, "{offset}");
        }
        assert_eq!(case.count(Operation::Login), 1, "{}", case.output());
        // The watcher compares the end with the server's.
        case.set(Fault::Refuse);
        eventually(Duration::from_mins(1), || match case.ask("/agent/v1/token")? {
            (503, _) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        case.clear(|case| case.set(Fault::None));
        case.recovers(Duration::from_secs(10));
        assert_eq!(case.count(Operation::Login), 2);
    });
}
