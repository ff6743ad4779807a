use super::*;

#[test]
fn bytes_are_zero_at_first_and_never_shared() {
    let mut all: Vec<ProtectedBytes> = (0..2000).map(|length| ProtectedBytes::zeroed(length % 300)).collect();
    for (index, bytes) in all.iter_mut().enumerate() {
        assert!(bytes.iter().all(|byte| *byte == 0), "{index}");
        bytes.fill(u8::try_from(index % 251).unwrap());
    }
    for (index, bytes) in all.iter().enumerate() {
        assert!(bytes.len() == index % 300 && bytes.iter().all(|byte| usize::from(*byte) == index % 251), "{index}");
    }
    let mut kept = 0;
    all.retain(|_| {
        kept += 1;
        kept % 3 == 0
    });
    let mut large = ProtectedBytes::zeroed(REGION * 2 + 1);
    large.fill(7);
    let again: Vec<ProtectedBytes> = (0..1000).map(|_| ProtectedBytes::zeroed(100)).collect();
    assert!(again.iter().all(|bytes| bytes.iter().all(|byte| *byte == 0)), "freed bytes are zero");
    assert!(large.iter().all(|byte| *byte == 7));
}

#[test]
fn a_region_is_taken_from_its_start_and_filled_whole() {
    let mut region = Region::new(REGION);
    let places: Vec<_> = std::iter::from_fn(|| region.allocate(BLOCK * 4)).collect();
    assert_eq!(places.len(), REGION / BLOCK / 4);
    assert_eq!(region.offset(places[1]), Some(BLOCK * 4));
    region.free(places[5], BLOCK * 4);
    assert_eq!(region.allocate(BLOCK * 4 + 1), None);
    assert_eq!(region.allocate(BLOCK * 3), Some(places[5]));
    for pointer in places {
        region.free(pointer, BLOCK * 4);
    }
    assert!(region.is_empty());
}

#[test]
fn locked_memory_holds_bytes_where_there_is_no_secret_memory() {
    let (start, protection) = map_locked_memory(REGION).unwrap();
    let mut region = Region { start, length: REGION, protection, used: vec![false; REGION / BLOCK] };
    assert_eq!(region.allocate(REGION), Some(start));
    assert!(matches!(protection, MemoryProtection::Locked | MemoryProtection::Unlocked), "{protection:?}");
}
