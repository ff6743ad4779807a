//! Log lines of the test's own thread, at every level.
//!
//! One subscriber for the whole test binary: with one subscriber per thread, `tracing` may cache a call site as disabled
//! because a thread without a subscriber reached it first.

use std::cell::RefCell;
use std::io::Write;
use std::sync::Once;

thread_local! {
    static LINES: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Starts to collect this thread's log; a test on a current-thread runtime logs everything on its own thread.
pub(crate) fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::fmt().json().with_max_level(tracing::Level::TRACE).with_writer(|| Own);
        tracing::subscriber::set_global_default(subscriber.finish()).expect("the only subscriber");
    });
    LINES.set(Some(Vec::new()));
}

/// Returns the lines that were logged since [`keep`].
pub(crate) fn text() -> String {
    String::from_utf8(LINES.with_borrow(|lines| lines.clone().expect("keep comes first"))).unwrap()
}

/// The same, each line parsed.
pub(crate) fn lines() -> Vec<serde_json::Value> {
    text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

struct Own;

impl Write for Own {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LINES.with_borrow_mut(|lines| lines.iter_mut().for_each(|lines| lines.extend_from_slice(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
