use super::*;
use crate::memtable::meter::Share;

#[test]
fn nodes_are_ordered_as_their_keys() {
    let arena = Arena::new(Share::default());
    let mut keys: Vec<Vec<u8>> = vec![vec![]];
    for byte in [0, 1, b'k', 255] {
        for length in [1, 2, 7, 8, 9, 15, 16, 17, 24, 25] {
            keys.push(vec![byte; length]);
            let mut other = vec![byte; length];
            other[length - 1] ^= 1;
            keys.push(other);
        }
    }
    keys.dedup();
    for one in &keys {
        for (one_trailer, other_trailer) in [(5, 5), (5, 6), (6, 5)] {
            let one = KeyRef::new(one, Trailer(one_trailer));
            let node = Node::create(&arena, 1, one, b"");
            for other in &keys {
                let other = KeyRef::new(other, Trailer(other_trailer));
                assert_eq!(node.compare(&Target::new(other)), one.cmp(&other), "{one:?} against {other:?}");
            }
        }
    }
}

#[test]
fn a_node_gives_back_what_was_put_in_at_every_height() {
    let arena = Arena::new(Share::default());
    let value = vec![9; 40_000];
    let nodes: Vec<Node<'_>> = (1..=HEIGHT_MAX)
        .map(|height| {
            let key = KeyRef::new(&value[..height * 3], Trailer(height as u64));
            Node::create(&arena, height, key, &value[..height * 2000])
        })
        .collect();
    for (height, node) in (1..).zip(&nodes) {
        assert_eq!(node.height(), height);
        assert_eq!(node.key(), KeyRef::new(&value[..height * 3], Trailer(height as u64)));
        assert_eq!(node.value(), &value[..height * 2000]);
        for level in 0..height {
            assert!(node.next(level).is_none());
            // SAFETY: all nodes are of one arena.
            unsafe {
                node.set_next(level, Some(nodes[0]));
                assert!(
                    !node.replace_next(level, None, nodes[1]) && node.replace_next(level, Some(nodes[0]), nodes[1])
                );
            }
            assert!(node.next(level) == Some(nodes[1]));
        }
        assert_eq!(node.key().trailer, Trailer(height as u64));
    }
}

#[test]
#[should_panic(expected = "level < self.height()")]
fn a_link_beyond_the_height_is_refused() {
    let arena = Arena::new(Share::default());
    Node::create(&arena, 2, KeyRef::new(b"key", Trailer(1)), b"").next(2);
}
