//! Values of annotations.

/// Parses a boolean as Go's `strconv.ParseBool` does.
pub(crate) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected \"true\" or \"false\"".to_owned()),
    }
}

/// Parses the id of a user or group other than root.
pub(crate) fn id(text: &str) -> Result<i64, String> {
    match text.parse::<i64>() {
        // The largest id of Kubernetes is that of a signed 32-bit number.
        Ok(id) if (1..=i64::from(i32::MAX)).contains(&id) => Ok(id),
        _ => Err("expected a number from 1 to 2147483647: keyward does not run as root".to_owned()),
    }
}

/// Parses a port that needs no capability.
pub(crate) fn port(text: &str) -> Result<u16, String> {
    match text.parse::<u16>() {
        Ok(port) if port >= 1024 => Ok(port),
        _ => Err("expected a port from 1024 to 65535".to_owned()),
    }
}

/// Checks a quantity of Kubernetes, such as `64Mi` or `10m`.
pub(crate) fn quantity(text: &str) -> Result<String, String> {
    const SUFFIXES: [&str; 15] = ["", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "u"];
    let number = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits =
        |digits: &str| !digits.is_empty() && digits.len() < 16 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_digits(whole) && is_digits(fraction) && SUFFIXES.contains(&&text[number.len()..]) {
        return Ok(text.to_owned());
    }
    Err("expected a quantity, such as \"64Mi\" or \"10m\"".to_owned())
}

/// Checks the mode of a file, such as `0400`.
pub(crate) fn mode(text: &str) -> Result<String, String> {
    let is_mode = (3..=4).contains(&text.len()) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    if is_mode && (text.len() == 3 || text.starts_with('0')) {
        return Ok(text.to_owned());
    }
    Err("expected a mode of three or four octal digits, such as \"0400\"".to_owned())
}

/// Checks the folder of a volume in all containers of a pod.
pub(crate) fn folder(text: &str) -> Result<String, String> {
    let path = text.trim_end_matches('/');
    if !path.starts_with('/') || path.split('/').skip(1).any(|part| matches!(part, "" | "." | "..")) {
        return Err("expected an absolute path without `..`".to_owned());
    }
    if path.contains(':') || path.chars().any(char::is_control) {
        return Err("expected a path without colons and control characters".to_owned());
    }
    // Mounted there, the volume would hide keyward's own files or the system's.
    let holds = |own: &str| own == path || own.starts_with(&format!("{path}/")) || path.starts_with(&format!("{own}/"));
    if RESERVED.into_iter().any(holds) {
        return Err(format!("expected another folder than {}, and none above or below them", RESERVED.join(", ")));
    }
    Ok(path.to_owned())
}

/// Folders of keyward's container, and of the system.
const RESERVED: [&str; 9] = [
    "/usr/bin",
    "/etc/ssl",
    "/etc/passwd",
    "/etc/group",
    "/var/lib/keyward",
    "/var/run/secrets",
    "/proc",
    "/sys",
    "/dev",
];

/// Checks the path of a file below a volume.
pub(crate) fn file(text: &str) -> Result<String, String> {
    let path = text.trim_start_matches('/');
    let is_bad = |part: &str| matches!(part, "" | "." | "..");
    if path.split('/').any(is_bad) || path.chars().any(char::is_control) {
        return Err("expected the path of a file below the volume, without `..`".to_owned());
    }
    Ok(path.to_owned())
}

/// Checks a text of one line.
pub(crate) fn line(text: &str) -> Result<String, String> {
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err("expected a text of one line".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T>(parse: fn(&str) -> Result<T, String>, good: &[&str], bad: &[&str]) {
        for text in good {
            assert!(parse(text).is_ok(), "{text:?}");
        }
        for text in bad {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn values_are_accepted_or_refused() {
        check(boolean, &["true", "1", "F"], &["", "yes", "tRUE"]);
        check(id, &["1", "65532"], &["0", "-1", "2147483648", "root", ""]);
        check(port, &["1024", "65535"], &["80", "65536", "x", ""]);
        check(quantity, &["64Mi", "10m", "1", "0.5", "2Gi"], &["", "Mi", "1.5.2", "-1", "64MB", "1e3x", ".5"]);
        check(mode, &["0400", "644"], &["", "0888", "10644", "4755", "u+r"]);
        check(
            folder,
            &["/vault/secrets", "/run/keyward/", "/etc/app"],
            &[
                "",
                "/",
                "a",
                "/a/../b",
                "/a//b",
                "/a:b",
                "/usr",
                "/usr/bin/x",
                "/etc",
                "/var/run/secrets/kubernetes.io/serviceaccount",
                "/a\n",
            ],
        );
        check(file, &["a", "conf/a.txt", "/a"], &["", "..", "a/../b", "a//b", "a/", "a\nb"]);
        check(line, &["a b"], &["", "a\nb"]);
    }
}
