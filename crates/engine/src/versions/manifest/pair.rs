//! Reading a manifest and its copy as one.
//!
//! Both files have the same frames at the same offsets, and an edit is in the copy only after the manifest has it
//! durably. So they are read side by side, from the front:
//!
//! 1. Where the manifest has a whole frame, that counts.
//! 2. Where it has none and the copy has one, the copy's counts. The edit was acknowledged, so the manifest has rotted
//!    there, or was cut: a damage that is reported and costs nothing. This also holds at the end, where a manifest
//!    alone could not tell rot from a frame that a crash has torn.
//! 3. Where neither has one and a whole frame lies anywhere behind in either of them, both are damaged at the same
//!    place.
//! 4. Otherwise the manifest ends here, perhaps with an edit that was never acknowledged.
//!
//! A copy that is missing, or ends early, is no damage. A store made by an older program has none, and one that could
//! not be written was given up.
//!
//! The copy is read first. A concurrent writer appends to the manifest first, so the copy is never ahead of it.
//!
//! **Invariant.** What this accepts begins with all that the manifest alone would give.

use super::{EDIT_BYTES_MAX, FORMAT_VERSION, FRAME_BYTES, HEADER_BYTES, MAGIC};
use crate::versions::edit::Edit;
use situ_base::bytes::u32_at;
use situ_storage::memory::{require, zeroed};
use situ_storage::{Corruption, Error, FileMeta, FileName, Result, Volume};
use std::collections::BTreeSet;

/// The contents that are read back at open.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) edits: Vec<Edit>,
    /// Length of the manifest.
    pub(crate) bytes: u64,
    /// The end of the last whole edit. The bytes behind it were never acknowledged, unless they have rotted.
    pub(crate) whole_bytes: u64,
    /// Length of the copy; `None` if there is none.
    pub(crate) copy_bytes: Option<u64>,
    /// The end of the last whole edit of the copy, if bytes that are no edit follow it.
    pub(crate) copy_torn: Option<u64>,
    /// The damages in one of the two files that are whole in the other.
    pub(crate) damages: Vec<Error>,
    /// The error that kept the copy from being read, if it is there.
    pub(crate) copy_unread: Option<Error>,
}

/// One of the two files.
#[derive(Clone, Copy)]
struct File<'a> {
    path: &'a str,
    contents: &'a [u8],
}

/// Path and contents of a file.
type Read = (String, Vec<u8>);

/// Memory for the edits of a manifest, as a multiple of its length, rounded up.
const STATE_FACTOR: usize = 48;
/// A longer manifest has many edits that undo each other.
const STATE_BYTES_MAX: usize = 64 << 20;

impl<'a> File<'a> {
    fn of((path, contents): &'a Read) -> File<'a> {
        File { path, contents }
    }
}

fn load(volume: &dyn Volume, name: FileName) -> Result<Read> {
    let reader = volume.open(name)?;
    let path = reader.path();
    let bytes = usize::try_from(reader.bytes()).unwrap_or(usize::MAX);
    if bytes > 4 * EDIT_BYTES_MAX {
        return Err(Error::corruption(path, 0, "manifest", "at most 4 GiB", format!("{bytes} bytes")));
    }
    // The edits become many small pieces of memory. A manifest of 4,000 keyspaces without tables became more than 31
    // times as long. The contents come first: their memory is not part of what is required.
    let mut contents = zeroed(bytes, path)?;
    require((STATE_FACTOR * bytes).min(STATE_BYTES_MAX), path)?;
    reader.read_at(0, &mut contents)?;
    Ok((path.to_owned(), contents))
}

/// Reads all edits of manifest `number`, with the help of its copy where it is damaged.
pub(crate) fn read(volume: &dyn Volume, number: u64) -> Result<Found> {
    let copy = load(volume, FileName::ManifestCopy(number));
    let manifest = load(volume, FileName::Manifest(number))?;
    match copy {
        Ok(copy) => found(&manifest, Some(&copy), Vec::new()),
        Err(Error::NotFound { .. }) => found(&manifest, None, Vec::new()),
        Err(error) => Ok(Found { copy_unread: Some(error), ..found(&manifest, None, Vec::new())? }),
    }
}

/// As [`read`], of a store that no process has open. A manifest that is missing, or that the disk does not give, is
/// taken from the copy, too. An opening does not do that: to ask again may help, and a copy alone could lack the last
/// edits.
pub(crate) fn read_damaged(volume: &dyn Volume, number: u64) -> Result<Found> {
    let error = match read(volume, number) {
        Err(error @ (Error::NotFound { .. } | Error::Io { .. })) => error,
        outcome => return outcome,
    };
    let copy = load(volume, FileName::ManifestCopy(number)).map_err(|_| error.clone())?;
    let found = found(&copy, None, vec![error])?;
    Ok(Found { bytes: 0, copy_bytes: Some(found.bytes), ..found })
}

fn found(manifest: &Read, copy: Option<&Read>, mut damages: Vec<Error>) -> Result<Found> {
    let Merged { edits, end, copy_torn } = merge(File::of(manifest), copy.map(File::of), &mut damages)?;
    if !edits.iter().any(|edit| edit.end_of_snapshot) {
        let path = &manifest.0[..];
        return Err(Error::corruption(path, HEADER_BYTES as u64, "snapshot edit", "its end mark", "none"));
    }
    let copy_bytes = copy.map(|(_, contents)| contents.len() as u64);
    let (bytes, whole_bytes) = (manifest.1.len() as u64, end as u64);
    let copy_torn = copy_torn.map(|at| at as u64);
    Ok(Found { edits, bytes, whole_bytes, copy_bytes, copy_torn, damages, copy_unread: None })
}

/// The edits of a damaged manifest that can still be read in one of its two files, in order; the frames between them
/// are skipped.
pub(crate) fn readable_edits(volume: &dyn Volume, number: u64) -> Result<Vec<Edit>> {
    let copy = load(volume, FileName::ManifestCopy(number));
    let files = match (load(volume, FileName::Manifest(number)), copy) {
        (Err(error), Err(_)) => return Err(error),
        (manifest, copy) => [manifest, copy].map(|file| file.map_or(Vec::new(), |(_, contents)| contents)),
    };
    let mut edits = Vec::new();
    let mut at = HEADER_BYTES;
    while files.iter().any(|contents| at < contents.len()) {
        let whole = files.iter().find_map(|contents| {
            let (payload, _) = frame(contents.get(at..)?).ok()?;
            Some((Edit::decode(payload).ok()?, FRAME_BYTES + payload.len()))
        });
        at += whole.as_ref().map_or(1, |(_, bytes)| *bytes);
        edits.extend(whole.map(|(edit, _)| edit));
    }
    Ok(edits)
}

/// Returns the numbers of all manifests of which one of the two files is there, ascending.
pub(crate) fn numbers(files: &[FileMeta]) -> Vec<u64> {
    let number = |file: &FileMeta| match file.name {
        FileName::Manifest(number) | FileName::ManifestCopy(number) => Some(number),
        _ => None,
    };
    files.iter().filter_map(number).collect::<BTreeSet<u64>>().into_iter().collect()
}

/// Returns the readable edits of the youngest manifest that has any, in force or not; nothing if there is none.
pub(crate) fn readable_of_youngest(volume: &dyn Volume, files: &[FileMeta]) -> Vec<Edit> {
    let readable = |number| readable_edits(volume, number).unwrap_or_default();
    numbers(files).into_iter().rev().map(readable).find(|edits| !edits.is_empty()).unwrap_or_default()
}

/// Takes the bytes of a manifest apart that has no copy: its edits, and where the last whole one ends.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn decode(path: &str, contents: &[u8]) -> Result<(Vec<Edit>, usize)> {
    merge(File { path, contents }, None, &mut Vec::new()).map(|merged| (merged.edits, merged.end))
}

fn check_header(file: File<'_>) -> Result<()> {
    let File { path, contents } = file;
    let Some(header) = contents.get(..HEADER_BYTES) else {
        let found = format!("{} bytes", contents.len());
        return Err(Error::corruption(path, 0, "manifest header", "16 bytes", found));
    };
    if !header.starts_with(MAGIC) {
        return Err(Error::corruption(path, 0, "manifest header", "magic SITUMANI", header[..8].escape_ascii()));
    }
    let (version, stored) = (u32_at(header, 8), u32_at(header, 12));
    let computed = crc32c::crc32c(&header[..12]);
    if stored != computed {
        let found = format!("{stored:#010x}");
        return Err(Error::corruption(path, 12, "manifest header", format!("checksum {computed:#010x}"), found));
    }
    if version != FORMAT_VERSION {
        let text = format!(
            "{path} has format version {version}, and this program reads version {FORMAT_VERSION}; use the Situ that wrote \
             it, or a later one"
        );
        return Err(Error::Invalid(text));
    }
    Ok(())
}

/// Returns a damage of one file where the other is whole.
fn helped(damage: Corruption, whole: File<'_>) -> Error {
    let found = format!("{}; {} is whole there, so nothing is lost", damage.found, whole.path);
    Error::Corruption(Corruption { found, ..damage }.into())
}

/// As [`helped`], of an edit.
fn made_good(damaged: File<'_>, at: usize, damage: Damage, whole: File<'_>) -> Error {
    let Damage { expected, found } = damage;
    let file = damaged.path.to_owned();
    helped(Corruption { file, offset: at as u64, what: "edit".to_owned(), expected, found }, whole)
}

/// The contents of both files together.
struct Merged {
    edits: Vec<Edit>,
    /// The end of the last edit.
    end: usize,
    /// The end of the last edit of the copy, if bytes that are no edit follow it.
    copy_torn: Option<usize>,
}

/// Steps 1 to 4.
fn merge(manifest: File<'_>, mut copy: Option<File<'_>>, damages: &mut Vec<Error>) -> Result<Merged> {
    let mut copy_torn = None;
    match (check_header(manifest), copy.map(check_header)) {
        (Ok(()), None | Some(Ok(()))) => {}
        (Err(Error::Corruption(damage)), Some(Ok(()))) => damages.extend(copy.map(|copy| helped(*damage, copy))),
        (Ok(()), Some(Err(Error::Corruption(damage)))) => damages.push(helped(*damage, manifest)),
        (Ok(()), Some(Err(error))) => damages.push(error),
        (Err(error), _) => return Err(error),
    }
    let mut edits = Vec::new();
    let mut at = HEADER_BYTES;
    loop {
        let mine = frame(manifest.contents.get(at..).unwrap_or_default());
        let its = copy.map(|copy| frame(copy.contents.get(at..).unwrap_or_default()));
        let (path, payload) = match (mine, copy.zip(its)) {
            (Ok((payload, _)), None) => (manifest.path, payload),
            (Ok((payload, _)), Some((file, Ok((other, _))))) => {
                if payload != other {
                    let damage =
                        Damage { expected: "the edit of the manifest".to_owned(), found: "another".to_owned() };
                    damages.push(made_good(file, at, damage, manifest));
                    copy = None;
                }
                (manifest.path, payload)
            }
            (Ok((payload, _)), Some((file, Err(damage)))) => {
                if whole_frame_behind(file, at) {
                    damages.push(made_good(file, at, damage, manifest));
                } else {
                    copy_torn = (at < file.contents.len()).then_some(at);
                    copy = None;
                }
                (manifest.path, payload)
            }
            (Err(damage), Some((file, Ok((payload, _))))) => {
                damages.push(made_good(manifest, at, damage, file));
                (file.path, payload)
            }
            // Each edit is synced before the next one is appended, so only the last can be torn.
            (Err(Damage { expected, found }), _) => {
                if whole_frame_behind(manifest, at) || copy.is_some_and(|copy| whole_frame_behind(copy, at)) {
                    return Err(Error::corruption(manifest.path, at as u64, "edit", expected, found));
                }
                copy_torn = copy_torn.or(copy.filter(|copy| at < copy.contents.len()).map(|_| at));
                return Ok(Merged { edits, end: at.min(manifest.contents.len()), copy_torn });
            }
        };
        let edit =
            Edit::decode(payload).map_err(|found| Error::corruption(path, at as u64, "edit", "known fields", found))?;
        edits.push(edit);
        at += FRAME_BYTES + payload.len();
    }
}

fn whole_frame_behind(file: File<'_>, at: usize) -> bool {
    let rest = file.contents.get(at..).unwrap_or_default();
    (1..rest.len()).any(|from| frame(&rest[from..]).is_ok())
}

struct Damage {
    expected: String,
    found: String,
}

/// Splits the first frame's payload from what lies behind it.
fn frame(bytes: &[u8]) -> Result<(&[u8], &[u8]), Damage> {
    let damage = |expected: String, found: String| Damage { expected, found };
    let short = || damage(format!("{FRAME_BYTES} bytes"), format!("{} bytes", bytes.len()));
    let (head, behind) = bytes.split_at_checked(FRAME_BYTES).ok_or_else(short)?;
    let (length, of_payload, of_head) = (u32_at(head, 0), u32_at(head, 4), u32_at(head, 8));
    let check = |computed: u32, stored: u32| match computed == stored {
        true => Ok(()),
        false => Err(damage(format!("checksum {computed:#010x}"), format!("{stored:#010x}"))),
    };
    check(crc32c::crc32c(&head[..8]), of_head)?;
    let cut = || damage(format!("{length} bytes"), format!("{} bytes", behind.len()));
    let (payload, behind) = behind.split_at_checked(length as usize).ok_or_else(cut)?;
    check(crc32c::crc32c(payload), of_payload)?;
    Ok((payload, behind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::manifest::Manifest;
    use situ_base::Env;
    use situ_sim::{FaultPlan, SimVolume};
    use std::sync::Arc;

    fn edit(n: u64) -> Edit {
        Edit { next_file: Some(n), created: vec![(n as u32, format!("keyspace {n}"))], ..Edit::default() }
    }

    /// A manifest of six edits: volume, contents, where the last edit begins.
    fn volume() -> (SimVolume, Vec<u8>, usize) {
        let sim = SimVolume::new(&Env::system(), FaultPlan::none(), 1);
        let volume: Arc<dyn Volume> = Arc::new(sim.clone());
        let mut manifest = Manifest::create(&volume, 1, &edit(1)).unwrap();
        (2..6).for_each(|n| manifest.append(&edit(n)).unwrap());
        let last = sim.contents(MANIFEST).unwrap().len();
        manifest.append(&edit(6)).unwrap();
        let contents = sim.contents(MANIFEST).unwrap();
        assert_eq!(sim.contents(COPY), Some(contents.clone()));
        (sim, contents, last)
    }

    const MANIFEST: FileName = FileName::Manifest(1);
    const COPY: FileName = FileName::ManifestCopy(1);

    #[test]
    fn rot_anywhere_in_one_of_the_two_files_is_told_and_costs_nothing() {
        let (sim, contents, last) = volume();
        let whole = read(&sim, 1).unwrap();
        assert!(whole.damages.is_empty() && whole.edits.len() == 6);
        for name in [MANIFEST, COPY] {
            for at in 0..contents.len() {
                let mut rotten = contents.clone();
                rotten[at] ^= 1 << (at % 8);
                sim.set_contents(name, &rotten);
                let found = read(&sim, 1).unwrap();
                assert_eq!(found.edits, whole.edits, "{name}, byte {at}");
                assert_eq!(found.whole_bytes, found.bytes);
                // The copy's last edit may be one that a crash has torn.
                let text = found.damages.iter().map(ToString::to_string).collect::<String>();
                let told = found.damages.len() == 1 && text.starts_with(&format!("sim/{name} is damaged at byte"));
                assert!(!told || text.ends_with("is whole there, so nothing is lost"), "{text}");
                assert!(
                    told || (name == COPY && at >= last && found.damages.is_empty()),
                    "{name}, {at}: {:?}",
                    found.damages
                );
                assert_eq!(readable_edits(&sim, 1).unwrap(), whole.edits, "{name}, byte {at}");
            }
            sim.set_contents(name, &contents);
        }
    }

    #[test]
    fn a_file_that_is_cut_or_missing_is_made_good_by_the_other() {
        let (sim, contents, _) = volume();
        let whole = read(&sim, 1).unwrap().edits;
        for name in [MANIFEST, COPY] {
            for cut in 0..contents.len() {
                sim.set_contents(name, &contents[..cut]);
                let found = read(&sim, 1).unwrap();
                assert_eq!(found.edits, whole, "{name} cut at {cut}");
                // A copy that ends early was given up, or a crash came between the two syncs.
                assert_eq!(found.damages.is_empty(), name == COPY && cut >= HEADER_BYTES, "{name} cut at {cut}");
                let mut zeros = contents[..cut].to_vec();
                zeros.resize(contents.len() + 100, 0);
                sim.set_contents(name, &zeros);
                assert_eq!(read(&sim, 1).unwrap().edits, whole, "{name}, zeros from {cut}");
            }
            sim.set_contents(name, &contents);
        }
        sim.remove(MANIFEST).unwrap();
        assert!(matches!(read(&sim, 1), Err(Error::NotFound { .. })), "an opening does not trust a copy alone");
        let found = read_damaged(&sim, 1).unwrap();
        assert!(found.edits == whole && matches!(found.damages[..], [Error::NotFound { .. }]));
        sim.set_contents(MANIFEST, &contents);
        sim.remove(COPY).unwrap();
        let found = read(&sim, 1).unwrap();
        assert!(found.edits == whole && found.damages.is_empty() && found.copy_bytes.is_none());
    }

    #[test]
    fn rot_in_both_files_costs_what_is_rotten_in_both() {
        let (sim, contents, last) = volume();
        let whole = read(&sim, 1).unwrap().edits;
        let flip = |name, at: usize| {
            let mut rotten = contents.clone();
            rotten[at] ^= 1;
            sim.set_contents(name, &rotten);
        };
        let second = decode("m", &contents).map(|_| frame(&contents[HEADER_BYTES..]).ok().unwrap().0.len()).unwrap();
        let second = HEADER_BYTES + FRAME_BYTES + second;
        flip(MANIFEST, HEADER_BYTES + 2);
        flip(COPY, second + 2);
        let found = read(&sim, 1).unwrap();
        assert!(found.edits == whole && found.damages.len() == 2, "{:?}", found.damages);
        flip(MANIFEST, second + 20);
        let error = read(&sim, 1).unwrap_err();
        assert!(error.to_string().contains(&format!("at byte {second}")), "{error}");
        assert_eq!(readable_edits(&sim, 1).unwrap().len(), 5);
        // At the end, it looks like an edit that was never acknowledged.
        flip(MANIFEST, last + 1);
        flip(COPY, last + 1);
        let found = read(&sim, 1).unwrap();
        assert_eq!((found.edits.len(), found.whole_bytes), (5, last as u64));
    }

    /// A file of another manifest under this name, as a wrong restore leaves it.
    #[test]
    fn a_copy_that_says_something_else_is_not_believed() {
        let (sim, contents, _) = volume();
        let volume: Arc<dyn Volume> = Arc::new(sim.clone());
        Manifest::create(&volume, 2, &edit(77)).unwrap();
        sim.set_contents(COPY, &sim.contents(FileName::Manifest(2)).unwrap());
        let found = read(&sim, 1).unwrap();
        assert_eq!(found.edits, decode("m", &contents).unwrap().0);
        assert_eq!(found.damages.len(), 1);
    }
}
