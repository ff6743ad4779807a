use http_body_util::{Full, StreamBody};
use hyper::body::Frame;

use super::*;

/// One byte of a separate read buffer.
fn byte() -> Bytes {
    Bytes::from(vec![b'x'; 8 * 1024]).slice(..1)
}

#[test]
fn bytes_that_come_one_by_one_take_no_more_than_twice_their_number() {
    let budget = BufferBudget::new(1 << 20);
    let mut buffer = budget.buffer(64 * 1024);
    for count in 1..=64 * 1024 {
        buffer.push(&byte()).unwrap();
        assert!(buffer.bytes.capacity() <= (2 * count).clamp(SMALLEST, 64 * 1024), "{count}");
        assert_eq!(budget.available(), (1 << 20) - buffer.bytes.capacity(), "memory is counted, not bytes");
    }
    assert_eq!(buffer.push(&byte()), Err(BufferFull::Limit));
    let bytes = buffer.into_bytes();
    let again = bytes.clone();
    drop(bytes);
    assert_eq!((again.len(), budget.available()), (64 * 1024, (1 << 20) - 64 * 1024));
    drop(again);
    assert_eq!(budget.available(), 1 << 20, "given back with the last clone");
}

#[test]
fn a_budget_is_used_to_its_end_and_not_beyond() {
    let budget = BufferBudget::new(3000);
    let mut first = budget.buffer(10_000);
    first.push(&[b'x'; 1024]).unwrap();
    let mut second = budget.buffer(10_000);
    second.push(&[b'x'; 1500]).unwrap();
    assert_eq!(budget.available(), 476);
    // The budget lacks double the capacity but has what is needed.
    first.push(&[b'x'; 400]).unwrap();
    assert_eq!(budget.available(), 76);
    assert_eq!(first.push(&[b'x'; 100]), Err(BufferFull::Budget));
    drop(second);
    first.push(&[b'x'; 100]).unwrap();
    assert_eq!(first.into_vec().len(), 1524);
    assert_eq!(budget.available(), 3000);
}

#[tokio::test]
async fn a_body_whose_length_is_known_takes_just_that() {
    let buffer = collect(Full::new(Bytes::from(vec![b'x'; 1500])), 4096).await.unwrap();
    assert_eq!((buffer.bytes.capacity(), buffer.into_bytes().len()), (1500, 1500));
    let large = collect(Full::new(Bytes::from(vec![b'x'; 1500])), 1499).await;
    assert!(matches!(large, Err(FillError::Full(BufferFull::Limit, _))));
}

#[tokio::test]
async fn a_chunk_that_does_not_fit_is_returned() {
    let frames = ["first ", "second"].map(|text| Ok::<_, std::io::Error>(Frame::data(Bytes::from(text))));
    let mut body = StreamBody::new(futures_util::stream::iter(frames));
    let mut buffer = BodyBuffer::new(10);
    let Err(FillError::Full(BufferFull::Limit, piece)) = buffer.fill(&mut body).await else { panic!("it fits") };
    assert_eq!((buffer.into_bytes(), piece), (Bytes::from("first "), Bytes::from("second")));
    let broken = [Err::<Frame<Bytes>, _>(std::io::Error::other("gone"))];
    let broken = collect(StreamBody::new(futures_util::stream::iter(broken)), 10).await;
    assert!(matches!(broken, Err(FillError::Broken(_))));
}
