//! The library as a C program sees it: `examples/tour.c`, compiled against the header and linked with both libraries.

#[path = "../../../situ-c/tests/common/c_programs.rs"]
mod c_programs;
#[path = "../../../server/tests/all/memcached/mod.rs"]
#[allow(dead_code, reason = "these tests need no version and no exchange of bytes")]
mod memcached;
#[path = "../../../device/tests/common/skipped.rs"]
mod skipped;

use c_programs::{Library, run};
use memcached::Memcached;
use situ_server::{CacheEngine, Server, ServerOptions};
use skipped::skipped;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const LIBRARY: Library = Library { package: "situ-client-c", name: "situ_client", home: env!("CARGO_MANIFEST_DIR") };

/// Takes the tour over Situ's server by each transport, and over memcached where it is installed.
fn take(program: &Path) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket").to_str().unwrap().to_owned();
    let options = ServerOptions {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        unix_socket: Some(socket.clone().into()),
        threads: 1,
        ..ServerOptions::default()
    };
    let engine = CacheEngine::new(&situ::cache::Options::of_memory(64 << 20)).unwrap();
    let server = Server::start(&options, Arc::new(engine)).unwrap();
    let tour = |arguments: &[&str], transport: &str| {
        let said = run(Command::new(program).args(arguments).env("LD_LIBRARY_PATH", LIBRARY.build()));
        assert!(said.contains("> hello, world\n") && said.ends_with("done\n"), "{said}");
        assert!(said.contains(&format!(" is reached over {transport}\n")), "{said}");
    };
    tour(&[&server.addresses()[0].to_string()], "TCP");
    tour(&[&socket], "shared memory");
    tour(&[&format!("unix:{socket}"), "shared-memory"], "shared memory");
    tour(&[&socket, "socket"], "Unix socket");
    server.stop(Duration::from_secs(10));
    let several: Option<Vec<Memcached>> = (0..2).map(|_| Memcached::start()).collect();
    match several {
        Some(several) => {
            tour(&[&several[0].address.to_string()], "TCP");
            tour(&[&format!("{}, {}", several[0].address, several[1].address)], "TCP");
        }
        None => skipped("memcached is not installed"),
    }
}

#[test]
fn a_program_with_the_shared_library_takes_the_tour() {
    let directory = tempfile::tempdir().unwrap();
    take(&LIBRARY.compile_shared("tour.c", directory.path()));
}

#[test]
fn a_program_with_the_static_library_takes_the_tour() {
    let directory = tempfile::tempdir().unwrap();
    take(&LIBRARY.compile_static("tour.c", directory.path()));
}

/// The template becomes a file with which pkg-config finds an installed library.
#[test]
fn pkg_config_names_header_and_library() {
    if !LIBRARY.compile_by_pkg_config("tour.c") {
        skipped("pkg-config is not installed");
    }
}

/// C++ programs include the header, too, and it names no symbol that the library lacks.
#[test]
fn the_header_is_cpp_and_names_the_symbols_of_the_library() {
    let header = std::fs::read_to_string(Path::new(LIBRARY.home).join("include/situ_client.h")).unwrap();
    let source = std::fs::read_to_string(Path::new(LIBRARY.home).join("src/lib.rs")).unwrap();
    // A declaration begins in the first column.
    let declares = |name: &str| header.lines().any(|line| !line.starts_with([' ', '/', '*']) && line.contains(name));
    let mut exported = 0;
    for (before, _) in source.match_indices("#[unsafe(no_mangle)]") {
        let name = source[before..].split(" fn ").nth(1).and_then(|rest| rest.split('(').next()).unwrap();
        assert!(declares(&format!("{name}(")), "the header lacks {name}");
        exported += 1;
    }
    let declared = header.lines().filter(|line| {
        let is_function = |name: &str| line.starts_with(name) && line.contains("situ_") && line.contains('(');
        ["int ", "void ", "const char *", "situ_client *"].into_iter().any(is_function)
    });
    assert_eq!(declared.count(), exported, "the header declares what the library does not have");
    if !LIBRARY.header_is_cpp("return situ_client_error()[0];") {
        skipped("there is no C++ compiler");
    }
}
