//! Receives the bytes of a connection. Reads go first into a buffer that all connections of a thread share: a connection that
//! waits has no buffer.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::poll_read_buf;

/// Bytes that were received and not yet decoded.
#[derive(Default)]
pub(crate) struct ReceiveBuffer {
    pub(crate) received: Bytes,
    /// Buffer of the next read, for a stream that fills the shared one.
    large_buffer: Option<BytesMut>,
}

impl ReceiveBuffer {
    /// Reads more bytes; `false` at the end of the stream.
    pub(crate) fn poll_more<I: AsyncRead + Unpin>(
        &mut self,
        stream: &mut I,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        let more = if let Some(buffer) = &mut self.large_buffer {
            // Several records of TLS share an allocation: each would cost a zeroing of its whole size.
            if buffer.capacity() < SHARED_READ_SIZE {
                buffer.reserve(LARGE_READ_SIZE);
            }
            ready!(poll_read_buf(Pin::new(stream), cx, buffer))?;
            buffer.split().freeze()
        } else {
            ready!(SHARED_BUFFER.with_borrow_mut(|shared_buffer| {
                let mut buffer = ReadBuf::new(shared_buffer);
                ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
                let bytes = Bytes::copy_from_slice(buffer.filled());
                // The bytes may be secret, and the buffer stays.
                buffer.filled_mut().fill(0);
                Poll::Ready(io::Result::Ok(bytes))
            }))?
        };
        if more.len() < SHARED_READ_SIZE {
            self.large_buffer = None;
        } else {
            self.large_buffer.get_or_insert_default();
        }
        let some = !more.is_empty();
        let is_first = self.received.is_empty();
        self.received = if is_first { more } else { [&*self.received, &*more].concat().into() };
        Poll::Ready(Ok(some))
    }

    /// Frees the buffer of large reads: none is expected.
    pub(crate) fn shrink(&mut self) {
        self.large_buffer = None;
    }
}

/// Sizes of reads into the shared buffer and into a buffer of the connection, in bytes.
const SHARED_READ_SIZE: usize = 16 * 1024;
const LARGE_READ_SIZE: usize = 128 * 1024;

thread_local! {
    static SHARED_BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SHARED_READ_SIZE].into());
}
