//! Folders that the programs of a machine share: none of them may become one service's.

use std::path::Path;

/// Returns true for a folder that a service must not own or write as a whole. Folders for temporary files are none: everybody
/// may write them.
pub fn is_system_folder(folder: &Path) -> bool {
    let is_home = folder.parent() == Some(Path::new("/home"));
    is_home
        || SHARED.iter().any(|shared| folder == Path::new(shared))
        || KERNEL.iter().any(|kernel| folder.starts_with(kernel))
}

/// The folders of the Filesystem Hierarchy Standard that many programs have files in.
const SHARED: [&str; 38] = [
    "/",
    "/bin",
    "/dev",
    "/etc",
    "/etc/pki",
    "/etc/ssl",
    "/etc/ssl/certs",
    "/etc/ssl/private",
    "/etc/systemd",
    "/etc/systemd/system",
    "/home",
    "/lib",
    "/lib64",
    "/media",
    "/mnt",
    "/opt",
    "/root",
    "/run",
    "/run/lock",
    "/run/user",
    "/sbin",
    "/srv",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/libexec",
    "/usr/local",
    "/usr/local/bin",
    "/usr/local/etc",
    "/usr/local/lib",
    "/usr/local/sbin",
    "/usr/local/share",
    "/usr/sbin",
    "/usr/share",
    "/var",
    "/var/cache",
    "/var/lib",
    "/var/log",
];

/// Folders of the boot loader and of the kernel, with all below them.
const KERNEL: [&str; 3] = ["/boot", "/proc", "/sys"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_folders_are_the_systems_and_folders_of_one_program_are_not() {
        for folder in ["/", "/etc", "/usr/bin", "/home/ci", "/root", "/var/lib", "/sys/fs/cgroup"] {
            assert!(is_system_folder(Path::new(folder)), "{folder}");
        }
        for folder in ["/etc/app", "/home/ci/.terraform.d", "/run/app", "/srv/app", "/tmp", "/data", "/usr/lib/app"] {
            assert!(!is_system_folder(Path::new(folder)), "{folder}");
        }
    }
}
