use super::*;
use crate::skipped::skipped;
use crate::uring::ring::Mode;

fn ring() -> Option<Ring> {
    Ring::new(1, Mode::default()).inspect_err(|error| skipped(format_args!("no io_uring here: {error}"))).ok()
}

/// Shows the buffer as often as it takes; the place, or none where the system refuses.
fn registered(registry: &mut Registry, buffer: &Buffer, ring: &Ring) -> Option<u16> {
    for _ in 1..SIGHTINGS {
        assert_eq!(registry.place_of(buffer, ring), None);
    }
    registry.place_of(buffer, ring)
}

#[test]
fn a_buffer_that_comes_back_is_registered_and_one_that_does_not_is_not() {
    let Some(ring) = ring() else { return };
    let mut registry = Registry::default();
    let (small, large) = (Buffer::new(BYTES_MIN / 2), Buffer::new(BYTES_MIN));
    for _ in 0..10 {
        assert_eq!(registry.place_of(&small, &ring), None);
        assert_eq!(registry.place_of(&Buffer::new(BYTES_MIN), &ring), None);
    }
    let place = registered(&mut registry, &large, &ring);
    if registry.state == RegistryState::Refused {
        return skipped("this process may not register buffers");
    }
    assert!(place.is_some());
    assert_eq!(registry.place_of(&large, &ring), place);
}

#[test]
fn a_place_that_an_operation_in_flight_names_is_nobody_elses() {
    let Some(ring) = ring() else { return };
    let mut registry = Registry::default();
    let first = Buffer::new(BYTES_MIN);
    let Some(place) = registered(&mut registry, &first, &ring) else {
        assert_eq!(registry.state, RegistryState::Refused);
        return skipped("this process may not register buffers");
    };
    let others: Vec<Buffer> = (0..2 * PLACES).map(|_| Buffer::new(BYTES_MIN)).collect();
    for other in &others {
        if let Some(others_place) = registered(&mut registry, other, &ring) {
            assert_ne!(others_place, place);
            registry.release(others_place);
        }
    }
    registry.release(place);
    let taken = others.iter().any(|other| registered_again(&mut registry, other, &ring) == Some(place));
    assert!(taken, "it is free again");
}

fn registered_again(registry: &mut Registry, buffer: &Buffer, ring: &Ring) -> Option<u16> {
    let place = (0..=SIGHTINGS).find_map(|_| registry.place_of(buffer, ring));
    place.inspect(|place| registry.release(*place))
}

#[test]
fn a_buffer_at_the_address_of_a_freed_one_is_another_buffer() {
    let Some(ring) = ring() else { return };
    let mut registry = Registry::default();
    // The allocator gives the same memory again, if not the first time.
    let came_again = (0..100).any(|_| {
        let first = Buffer::new(BYTES_MIN);
        let place = registered_again(&mut registry, &first, &ring);
        if registry.state == RegistryState::Refused {
            return false;
        }
        // As long as there is room; what is registered stays for a while.
        let is_registered = place.is_some_and(|place| registry.places[usize::from(place)].id == first.id());
        let address = first.address();
        drop(first);
        let other = Buffer::new(BYTES_MIN);
        assert_eq!(registry.place_of(&other, &ring), None);
        is_registered && other.address() == address
    });
    if registry.state == RegistryState::Refused {
        return skipped("this process may not register buffers");
    }
    assert!(came_again, "no buffer had the address of one that was registered; this test shows nothing");
}

#[test]
fn what_is_pinned_is_bounded() {
    let Some(ring) = ring() else { return };
    let mut registry = Registry::default();
    for bytes in [BYTES_MIN, PINNED_BYTES_MAX / 4, PINNED_BYTES_MAX] {
        for _ in 0..2 * PLACES {
            let buffer = Buffer::new(bytes);
            registered_again(&mut registry, &buffer, &ring);
            assert!(registry.pinned_bytes() <= PINNED_BYTES_MAX);
        }
    }
    let too_large = Buffer::new(PINNED_BYTES_MAX + 1);
    for _ in 0..10 {
        assert_eq!(registry.place_of(&too_large, &ring), None);
    }
}
