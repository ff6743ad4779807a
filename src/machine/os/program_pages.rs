//! Releases the pages of the program's code and constants that ran once, as the start and the checks of a token do.

use rustix::mm::{Advice, madvise};

unsafe extern "C" {
    /// First byte of the program's image, which starts a page. Defined by the linker, as is the next one: GNU ld, LLD and mold do.
    static __executable_start: u8;
    /// First byte behind the program's code.
    static etext: u8;
}

/// Unmaps the program's code and the constants before it. Code that runs again is mapped again from the page cache; the rest no
/// longer counts as resident, and the kernel may evict it. The start parses files, builds trust stores and applies the sandbox,
/// so that most of the pages that it mapped are never used again. A check of the token uses TLS and JSON every few minutes.
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
    Ok(())
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
