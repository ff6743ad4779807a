//! Releases the pages of the program's code and constants that ran once, as the start and the checks of a token do.

use rustix::mm::{Advice, madvise};
use tokio::sync::Notify;

/// Requests a release soon: code has run that will not run again for minutes, such as that of a call to a server.
pub fn request_page_release() {
    REQUESTED.notify_one();
}

/// Waits until a release is requested.
pub async fn page_release_requested() {
    REQUESTED.notified().await;
}

static REQUESTED: Notify = Notify::const_new();

unsafe extern "C" {
    /// First byte of the program's image, which starts a page. Defined by the linker, as is the next one: GNU ld, LLD and mold do.
    static __executable_start: u8;
    /// First byte behind the program's code.
    static etext: u8;
}

/// Unmaps the code of the program and of its libraries, and the program's constants before it. Code that runs again is mapped again
/// from the page cache; the rest no longer counts as resident, and the kernel may evict it. The start parses files, builds trust stores
/// and applies the sandbox, so that most of the pages that it mapped are never used again. A check of the token uses TLS and JSON every
/// few minutes.
///
/// # Errors
/// The kernel refused, for example because the program's pages are locked. Nothing depends on the release.
pub fn release_program_pages() -> std::io::Result<()> {
    let start = &raw const __executable_start;
    let end = &raw const etext;
    let size = end.addr().saturating_sub(start.addr());
    // SAFETY: between these symbols stand the segments of headers, constants and code, which are private mappings of the program's
    // file that nothing writes to: a dropped page is read again with the same content. Segments that the dynamic loader relocates
    // come later.
    unsafe { madvise(start.cast_mut().cast(), size, Advice::LinuxDontNeed) }?;
    for (start, end) in std::fs::read_to_string("/proc/self/maps")?.lines().filter_map(code_of_file) {
        // SAFETY: the mapping is a file's, private, and not writable: the code of the program or of a library. None has relocations in
        // its code, so that a dropped page is read again with the same content. Libraries stay mapped until the end.
        unsafe {
            madvise(std::ptr::with_exposed_provenance_mut(start), end.saturating_sub(start), Advice::LinuxDontNeed)
        }?;
    }
    Ok(())
}

/// Parses a line of `/proc/self/maps` (`proc_pid_maps(5)`); returns the range if it is code of a file.
fn code_of_file(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_code = fields.next()? == "r-xp" && fields.nth(3)?.starts_with('/');
    let address = |text| usize::from_str_radix(text, 16).ok();
    is_code.then_some((address(start)?, address(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident_file_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    fn code_of_files_is_recognized() {
        let line = |rest: &str| code_of_file(&format!("7f3e354ea000-7f3e35640000 {rest}"));
        assert_eq!(line("r-xp 00026000 fe:00 1 /lib/libc.so.6"), Some((0x7f3e_354e_a000, 0x7f3e_3564_0000)));
        for other in
            ["r--p 00026000 fe:00 1 /lib/libc.so.6", "rwxp 0 fe:00 1 /lib/x", "r-xp 0 00:00 0 [vdso]", "r-xp 0 00:00 0"]
        {
            assert_eq!(line(other), None, "{other}");
        }
    }

    #[test]
    fn released_pages_are_no_longer_resident_and_the_program_runs_on() {
        // Other tests of this process map pages at the same time.
        let is_smaller = (0..100).any(|_| {
            let before = resident_file_kib();
            release_program_pages().unwrap();
            resident_file_kib() < before
        });
        assert!(is_smaller);
    }
}
