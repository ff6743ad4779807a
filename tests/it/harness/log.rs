//! What a test's own thread logs, line by line, at every level.
//!
//! One subscriber for the whole test binary: with one of each thread's own, `tracing` may take a place in the code for
//! silent because a thread without a subscriber came by first.

use std::cell::RefCell;
use std::io::Write;
use std::sync::Once;

thread_local! {
    static LINES: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Starts to keep what this thread logs; a test on a current-thread runtime logs all on its own thread.
pub(crate) fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::fmt().json().with_max_level(tracing::Level::TRACE).with_writer(|| Own);
        tracing::subscriber::set_global_default(subscriber.finish()).expect("the only subscriber");
    });
    LINES.set(Some(Vec::new()));
}

/// What was logged since [`keep`], as it stands in the log.
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
