use super::*;
use crate::{Rng, for_each_seed};

/// A commit up to a write makes its outcome durable: no older one, and, as long as few states are pending, no newer.
#[test]
fn a_commit_reaches_the_write_it_names_and_not_further() {
    for_each_seed(0, 500, |seed| {
        let mut rng = Rng::new(seed);
        let mut inode = Inode::durable(vec![0; SECTOR_BYTES]);
        let few = rng.chance(0.5);
        let writes = if few { OLDER_STATES_MAX as u64 } else { 60 };
        let (mut number, mut pending) = (0, 0);
        for _ in 0..100 {
            if pending < writes && rng.chance(0.9) {
                number += 1;
                pending += 1;
                inode.write(number, 0, &[number as u8; SECTOR_BYTES]);
                assert_eq!(inode.contents[0], number as u8);
            } else {
                let before = u64::from(inode.durable[0]);
                let upto = before + rng.below(number - before + 1);
                inode.commit(upto, 0, rng.chance(0.5).then_some(0..1));
                let found = u64::from(inode.durable[0]);
                assert!((upto..=number).contains(&found), "committed {upto} of {number}, found {found}");
                assert!(!few || found == upto, "committed {upto}, found {found}");
                assert_eq!(inode.dirty.is_empty(), found == number);
                pending = number - found;
            }
            let states = inode.dirty.get(&0).map_or(0, |dirty| dirty.older.len());
            assert!(states <= OLDER_STATES_MAX, "{states} states are kept");
        }
    });
}

#[test]
fn a_sector_is_cut_at_the_end_of_the_file() {
    let bytes = [7; SECTOR_BYTES + 3];
    assert_eq!(sector_of(&bytes, 0), [7; SECTOR_BYTES]);
    let tail = sector_of(&bytes, 1);
    assert_eq!((tail[2], tail[3]), (7, 0));
    assert_eq!(sector_of(&bytes, 2), [0; SECTOR_BYTES]);
    let mut target = [0; SECTOR_BYTES + 3];
    put_sector(&mut target, 1, &[9; SECTOR_BYTES]);
    put_sector(&mut target, 2, &[9; SECTOR_BYTES]);
    assert_eq!((target[SECTOR_BYTES - 1], target[SECTOR_BYTES + 2]), (0, 9));
    assert_eq!(sectors(511, 2), 0..2);
    assert_eq!(sectors(512, 512), 1..2);
}
