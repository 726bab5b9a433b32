//! The changes of a few pages since an image that both ends have.
//!
//! A page of a log is written again with each record that it takes, and little of it is new. So the client sends
//! pieces, each with its place, and the node puts them into its own image of the page. What comes of that is a whole
//! page, which the node writes as any other.
//!
//! A piece is an offset (u16), a length (u16) and the bytes. Pieces come in the order of their offsets, and do not
//! overlap.
//!
//! **Invariants.** Applied to the base that they were found against, the pieces give the new bytes. Applied again, they
//! give the same.
//! **Failure.** Bytes that are no such pieces are an error, and the base may hold some of them by then.

use situ_device::PAGE_BYTES;

/// Pages that one request may change: their offsets fit into 16 bits.
pub(crate) const PAGES_MAX: usize = 16;
/// Equal bytes that are sent rather than skipped: a piece of its own would cost as many.
const GAP_BYTES: usize = 4;
const WORD_BYTES: usize = size_of::<u64>();

const _: () = assert!(PAGES_MAX * PAGE_BYTES - 1 <= u16::MAX as usize);

static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// The pieces in which `new`, a few whole pages, differs from `image` in the first page and from zeros in the others.
/// Without an image, the first page differs from zeros, too.
pub(crate) fn find(image: Option<&[u8]>, new: &[u8]) -> Vec<u8> {
    assert!(new.len() <= PAGES_MAX * PAGE_BYTES, "{} bytes of changed pages", new.len());
    let mut pieces = Vec::new();
    for (index, page) in new.chunks(PAGE_BYTES).enumerate() {
        let base = image.filter(|_| index == 0).unwrap_or(&ZEROS);
        find_in_page(base, page, index * PAGE_BYTES, &mut pieces);
    }
    pieces
}

fn find_in_page(base: &[u8], page: &[u8], begin: usize, pieces: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(first) = next_difference(base, page, at) {
        let mut end = first + 1;
        while let Some(next) = next_difference(base, page, end).filter(|next| *next - end <= GAP_BYTES) {
            end = next + 1;
        }
        pieces.extend_from_slice(&((begin + first) as u16).to_le_bytes());
        pieces.extend_from_slice(&((end - first) as u16).to_le_bytes());
        pieces.extend_from_slice(&page[first..end]);
        at = end;
    }
}

/// The first place from `at` on where the two differ.
fn next_difference(base: &[u8], page: &[u8], mut at: usize) -> Option<usize> {
    while at < page.len() && base[at] == page[at] {
        let is_word = at.is_multiple_of(WORD_BYTES) && at + WORD_BYTES <= page.len();
        let is_equal = is_word && base[at..at + WORD_BYTES] == page[at..at + WORD_BYTES];
        at += if is_equal { WORD_BYTES } else { 1 };
    }
    (at < page.len()).then_some(at)
}

/// Puts the pieces into `pages`. `None` if they are no pieces of this many pages.
pub(crate) fn apply(mut pieces: &[u8], pages: &mut [u8]) -> Option<()> {
    let mut free = 0;
    while !pieces.is_empty() {
        let (offset, rest) = pieces.split_first_chunk::<2>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (offset, length) = (usize::from(u16::from_le_bytes(*offset)), usize::from(u16::from_le_bytes(*length)));
        if offset < free || length == 0 {
            return None;
        }
        let (bytes, rest) = rest.split_at_checked(length)?;
        free = offset + length;
        pages.get_mut(offset..free)?.copy_from_slice(bytes);
        pieces = rest;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_record_that_a_page_takes_is_about_all_that_is_sent() {
        let mut page = vec![0; PAGE_BYTES];
        page[48..1000].fill(7);
        let before = page.clone();
        page[20..22].fill(1);
        page[36..40].fill(2);
        page[44..48].fill(3);
        page[1000..1140].fill(9);
        let pieces = find(Some(&before), &page);
        assert_eq!(pieces.len(), (4 + 2) + (4 + 12) + (4 + 140), "the two checksums are one piece");
        assert_eq!(find(Some(&page), &page), []);
        assert_eq!(find(None, &[0; 3 * PAGE_BYTES]), []);
    }

    #[test]
    fn bytes_that_are_no_pieces_are_refused() {
        let mut pages = vec![0; PAGE_BYTES];
        let piece =
            |offset: u16, length: u16, bytes: &[u8]| [&offset.to_le_bytes()[..], &length.to_le_bytes(), bytes].concat();
        for bad in [
            piece(4095, 2, b"ab"),
            piece(0, 3, b"ab"),
            piece(0, 0, b""),
            vec![1],
            [piece(10, 2, b"ab"), piece(11, 1, b"c")].concat(),
            [piece(10, 1, b"a"), piece(9, 1, b"c")].concat(),
        ] {
            assert_eq!(apply(&bad, &mut pages), None, "{bad:?}");
        }
        assert_eq!(apply(&piece(4094, 2, b"ab"), &mut pages), Some(()));
        assert_eq!(pages[4094..], *b"ab");
    }

    proptest! {
        #[test]
        fn pieces_give_the_new_pages_however_often_they_are_applied(
            pages in 1usize..=3,
            has_image: bool,
            writes in prop::collection::vec((0usize..3 * PAGE_BYTES, 1usize..300, any::<u8>()), 0..12),
        ) {
            let image: Vec<u8> = (0..PAGE_BYTES).map(|at| (at % 3) as u8).collect();
            let mut base = vec![0; pages * PAGE_BYTES];
            if has_image {
                base[..PAGE_BYTES].copy_from_slice(&image);
            }
            let mut new = base.clone();
            for (at, length, byte) in writes {
                let at = at % new.len();
                let end = (at + length).min(new.len());
                new[at..end].fill(byte);
            }
            let pieces = find(has_image.then_some(&image[..]), &new);
            for _ in 0..2 {
                prop_assert_eq!(apply(&pieces, &mut base), Some(()));
                prop_assert_eq!(&base, &new);
            }
        }

        #[test]
        fn any_bytes_are_pieces_or_not(pieces in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = apply(&pieces, &mut [0; PAGE_BYTES]);
        }
    }
}
