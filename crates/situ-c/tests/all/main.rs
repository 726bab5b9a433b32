//! The library as C programs see it: the header, and `examples/tour.c`, which calls every function.

#[path = "../common/c_programs.rs"]
mod c_programs;
#[path = "../../../device/tests/common/skipped.rs"]
mod skipped;

use c_programs::{Library, run};
use cbindgen::{Builder, Config, Language};
use skipped::skipped;
use std::path::Path;
use std::process::Command;

const LIBRARY: Library = Library { package: "situ-c", name: "situ", home: env!("CARGO_MANIFEST_DIR") };

/// The head of the header.
const HEAD: &str = "\
/* Situ: an ordered, durable key-value store.
 *
 *     situ_store *store;
 *     situ_keyspace *keyspace;
 *     situ_error *error;
 *     if (situ_store_open(\"data\", NULL, &store, &error) != SITU_OK) {
 *         fprintf(stderr, \"%s\\n\", situ_error_text(error));
 *         return 1;
 *     }
 *     situ_store_keyspace(store, \"default\", NULL, &keyspace, NULL);
 *     situ_keyspace_put(keyspace, \"ada\", 3, \"1815\", 4, SITU_SYNCED, NULL);
 *
 * Link with -lsitu, or ask pkg-config for situ. examples/tour.c calls every function.
 *
 * **Handles.** A call that returns a handle, a value or an error gives it to the caller, who frees it with the function
 * of that type. Handles do not depend on each other: they may be freed in any order. After a call that fails, a place
 * for a handle holds NULL, and a place for a value holds none.
 *
 * **Threads.** Threads share a store, its keyspaces, its snapshots, and values. A batch, a cursor, a transaction and
 * options belong to one thread at a time. A handle is freed by one thread, when no other uses it.
 *
 * **Errors.** A call returns a status, which is negative after an error. If the place for an error is not NULL, it
 * becomes the error, or NULL. No error is lost without it: the status has its kind.
 *
 * **Arguments.** Keys and values are bytes with a length. A pointer to 0 bytes may be NULL. Names and paths are texts
 * in UTF-8 with a zero at the end. The library copies what it keeps.
 *
 * **Processes.** The library has threads. A child of fork() must not use handles of its parent.
 *
 * This file is made of the library's source: SITU_BLESS=1 cargo test -p situ-c.
 */";

/// Returns the header of the source as it is now.
fn header() -> String {
    let config = Config {
        language: Language::C,
        header: Some(HEAD.to_owned()),
        include_guard: Some("SITU_H".to_owned()),
        no_includes: true,
        sys_includes: ["stddef.h", "stdint.h"].map(str::to_owned).to_vec(),
        cpp_compat: true,
        line_length: 120,
        tab_width: 4,
        documentation_style: cbindgen::DocumentationStyle::C99,
        usize_is_size_t: true,
        style: cbindgen::Style::Both,
        ..Config::default()
    };
    let mut made = Vec::new();
    Builder::new().with_config(config).with_crate(LIBRARY.home).generate().unwrap().write(&mut made);
    String::from_utf8(made).unwrap()
}

/// Writes the header if `SITU_BLESS` is set, and compares it otherwise.
#[test]
fn the_header_is_that_of_the_source() {
    let (path, made) = (Path::new(LIBRARY.home).join("include/situ.h"), header());
    if std::env::var_os("SITU_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept == made, "the header is older than the source: SITU_BLESS=1 cargo test -p situ-c");
    let tour = std::fs::read_to_string(Path::new(LIBRARY.home).join("examples/tour.c")).unwrap();
    let declared = made.lines().filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next());
    let functions: Vec<&str> = declared.filter(|name| name.starts_with("situ_")).collect();
    assert!(functions.len() > 60, "{functions:?}");
    for function in functions {
        assert!(tour.contains(&format!("{function}(")), "the tour does not call {function}");
    }
}

#[test]
fn the_header_is_cpp() {
    if !LIBRARY.header_is_cpp("return situ_version()[0];") {
        skipped("there is no C++ compiler");
    }
}

/// Takes the tour in a directory of its own, by the program alone or below another one.
fn take(program: &Path, below: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let command = below.iter().map(AsRef::as_ref).chain([program.as_os_str(), directory.path().as_os_str()]);
    let mut command = command.map(std::ffi::OsStr::to_owned);
    let mut tour = Command::new(command.next().unwrap());
    let said = run(tour.args(command).env("LD_LIBRARY_PATH", LIBRARY.build()));
    for line in
        ["ada: 1815", "in the range: grace", "popped: alan", "bob had: 5", "bob has: 7", "keyspace: log", "a: c"]
    {
        assert!(said.lines().any(|said| said == line), "{line}: {said}");
    }
    assert!(said.ends_with("done\n"), "{said}");
}

#[test]
fn a_program_with_the_shared_library_takes_the_tour() {
    let directory = tempfile::tempdir().unwrap();
    take(&LIBRARY.compile_shared("tour.c", directory.path()), &[]);
}

#[test]
fn a_program_with_the_static_library_takes_the_tour() {
    let directory = tempfile::tempdir().unwrap();
    take(&LIBRARY.compile_static("tour.c", directory.path()), &[]);
}

/// The program of the guide is on its page as it is here.
#[test]
fn the_program_of_the_guide_runs() {
    let home = Path::new(LIBRARY.home);
    let program = std::fs::read_to_string(home.join("examples/guide.c")).unwrap();
    let page = std::fs::read_to_string(home.join("../../docs/guide/c.md")).unwrap();
    assert!(page.contains(&format!("```c\n{program}```")), "docs/guide/c.md has another program than examples/guide.c");
    let directory = tempfile::tempdir().unwrap();
    let mut guide = Command::new(LIBRARY.compile_shared("guide.c", directory.path()));
    let said = run(guide.arg(directory.path().join("store")).env("LD_LIBRARY_PATH", LIBRARY.build()));
    assert_eq!(said, "ada was born in 1815\ngrace was born in 1906\n");
}

/// Valgrind finds memory that is read or freed wrongly, and memory that nothing refers to at the end. Values that were
/// never set are no error: LLVM reads the inside of an `Option` before it looks whether there is one.
#[test]
fn valgrind_finds_nothing_in_the_tour() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skipped("valgrind is not installed");
    }
    let directory = tempfile::tempdir().unwrap();
    let program = LIBRARY.compile_shared("tour.c", directory.path());
    let valgrind = ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", "--show-leak-kinds=definite"];
    take(
        &program,
        &[&valgrind[..], &["--errors-for-leak-kinds=definite", "--undef-value-errors=no", "--fair-sched=yes"]].concat(),
    );
}

/// The template becomes a file with which pkg-config finds an installed library.
#[test]
fn pkg_config_names_header_and_library() {
    if !LIBRARY.compile_by_pkg_config("tour.c") {
        skipped("pkg-config is not installed");
    }
}
