use super::*;
use std::fmt::Write;
use std::path::Path;

pub(in crate::membership) const KNOWN: [Known; 6] =
    [Known::Nothing, Known::Damaged, Known::Unreadable, Known::NoFastDisk, Known::Adding, Known::Used];

/// What MEMBER can say beside DISKS.
fn says_beside(known: Known) -> &'static [Says] {
    match known {
        Known::Nothing | Known::Damaged | Known::Unreadable => {
            &[Says::Nothing, Says::Damaged, Says::Unreadable, Says::AnotherStore]
        }
        Known::NoFastDisk | Known::Adding => {
            &[Says::Nothing, Says::Damaged, Says::Unreadable, Says::ThisStore, Says::AnotherStore]
        }
        Known::Used => {
            &[Says::Nothing, Says::Damaged, Says::Unreadable, Says::ThisDisk, Says::ThisStore, Says::AnotherStore]
        }
    }
}

fn offers(known: Known, access: Access) -> Vec<Offer> {
    let mut offers = vec![Offer::Nothing];
    if access.gives_up_fast_disk() {
        offers.push(Offer::NotWanted);
        return offers;
    }
    // What cannot be read neither takes a disk back nor names another one.
    if !matches!(known, Known::Damaged | Known::Unreadable) {
        offers.push(Offer::Drained);
    }
    if !matches!(known, Known::Nothing | Known::NoFastDisk) {
        offers.extend(says_beside(known).iter().copied().map(Offer::Remembered));
    }
    offers.extend(says_beside(known).iter().copied().map(Offer::Named));
    offers
}

fn accesses() -> impl Iterator<Item = Access> {
    let repairs = [false, true]
        .into_iter()
        .flat_map(|without_fast_disk| [Access::Repair { without_fast_disk }, Access::Survey { without_fast_disk }]);
    [Access::Read, Access::Write].into_iter().chain(repairs)
}

/// All that there can be.
pub(in crate::membership) fn combinations() -> Vec<(Access, Known, Offer)> {
    let of = |access, known| offers(known, access).into_iter().map(move |offer| (access, known, offer));
    accesses().flat_map(|access| KNOWN.into_iter().flat_map(move |known| of(access, known))).collect()
}

fn access_text(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
        Access::Repair { without_fast_disk: false } => "repair",
        Access::Survey { without_fast_disk: false } => "survey",
        Access::Repair { without_fast_disk: true } => "repair without",
        Access::Survey { without_fast_disk: true } => "survey without",
    }
}

fn known_text(known: Known) -> &'static str {
    match known {
        Known::Nothing => "not there",
        Known::Damaged => "damaged",
        Known::Unreadable => "unreadable",
        Known::NoFastDisk => "no fast disk",
        Known::Adding => "adding",
        Known::Used => "used",
    }
}

fn says_text(says: Says) -> &'static str {
    match says {
        Says::Nothing => "not there",
        Says::Damaged => "damaged",
        Says::Unreadable => "unreadable",
        Says::ThisDisk => "this disk",
        Says::ThisStore => "this store",
        Says::AnotherStore => "another store",
    }
}

/// What is given, and what MEMBER on it says.
fn offer_text(offer: Offer) -> [&'static str; 2] {
    match offer {
        Offer::Nothing => ["nothing", "-"],
        Offer::Drained => ["drained", "-"],
        Offer::Remembered(says) => ["remembered", says_text(says)],
        Offer::Named(says) => ["named", says_text(says)],
        Offer::NotWanted => ["named", "-"],
    }
}

fn table() -> String {
    let mut text =
        "# Every way to open a store, and the case that it is (`src/opening/membership/classify.rs`).\n\n".to_owned();
    let mut line = |[access, disks, given, member, case]: [&str; 5]| {
        writeln!(text, "{access:14}  {disks:12}  {given:10}  {member:13}  {case}").unwrap();
    };
    line(["access", "DISKS", "given", "MEMBER", "case"]);
    for (access, known, offer) in combinations() {
        let [given, member] = offer_text(offer);
        let case = format!("{:?}", classify(known, offer, access));
        line([access_text(access), known_text(known), given, member, &case]);
    }
    text
}

fn tables_of_second_looks() -> String {
    let files = |has_files| if has_files { "files" } else { "nothing" };
    let mut text = "\n# LookOnDisk: a repair has looked what is on the disk.\n\n".to_owned();
    writeln!(text, "{:12}  {:9}  case", "DISKS", "on disk").unwrap();
    for known in [Known::Nothing, Known::Damaged, Known::Unreadable] {
        for has_files in [false, true] {
            let case = classify_unmarked(known, has_files);
            writeln!(text, "{:12}  {:9}  {case:?}", known_text(known), files(has_files)).unwrap();
        }
    }
    text += "\n# Add: a writer has looked what is on the disk.\n\n";
    writeln!(text, "{:12}  {:9}  case", "MEMBER", "on disk").unwrap();
    for is_marked in [false, true] {
        for has_files in [false, true] {
            let member = says_text(if is_marked { Says::ThisStore } else { Says::Nothing });
            writeln!(text, "{member:12}  {:9}  {:?}", files(has_files), classify_addition(is_marked, has_files))
                .unwrap();
        }
    }
    text
}

#[test]
fn every_combination_is_the_case_that_the_golden_file_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/membership/cases.txt");
    let found = table() + &tables_of_second_looks();
    let blesses = std::env::var_os("SITU_BLESS").is_some();
    if blesses {
        std::fs::write(&path, &found).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert!(found == golden, "{} differs; SITU_BLESS=1 writes it anew:\n{found}", path.display());
}

/// A disk that is not proven to be the store's would bring tables and log files of another one.
#[test]
fn a_disk_is_taken_without_proof_only_if_both_files_name_it() {
    for (access, known, offer) in combinations() {
        let is_named_by_both =
            known == Known::Used && matches!(offer, Offer::Named(Says::ThisDisk) | Offer::Remembered(Says::ThisDisk));
        let case = classify(known, offer, access);
        assert_eq!(case == Case::Take, is_named_by_both, "{access:?} {known:?} {offer:?}");
        let is_without_proof = matches!(
            case,
            Case::TakeWithoutMember | Case::TakeWithoutDisks | Case::TakeWithoutEither | Case::LookOnDisk
        );
        assert!(!is_without_proof || access.repairs(), "{access:?} {known:?} {offer:?}");
        assert!(case != Case::Add || access == Access::Write, "{access:?} {known:?} {offer:?}");
    }
}
