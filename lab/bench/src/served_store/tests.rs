use super::*;
use crate::memory::MemoryFactory;
use crate::{Error, Workload, run};
use situ_server::{CacheEngine, Server, ServerOptions, TlsFiles};

/// Returns a cache that is served on a free port and on a Unix socket in `directory`.
fn serve(directory: &Path) -> Server {
    let options = ServerOptions {
        listen: vec!["127.0.0.1:0".parse().expect("an address")],
        unix_socket: Some(directory.join("socket")),
        threads: 1,
        ..ServerOptions::default()
    };
    let engine = CacheEngine::new(&situ::cache::Options::of_memory(64 << 20)).expect("a cache");
    Server::start(&options, Arc::new(engine)).expect("a server")
}

fn options(address: &str, transport: Transport, workloads: &[Workload]) -> BenchOptions {
    BenchOptions {
        keys: 500,
        threads: 2,
        key_format: crate::content::KeyFormat::Decimal,
        workloads: workloads.to_vec(),
        connect: Some(address.to_owned()),
        transport,
        ..BenchOptions::default()
    }
}

#[test]
fn a_server_is_driven_over_each_transport_and_never_emptied() {
    use Workload as W;
    let directory = tempfile::tempdir().expect("a directory");
    let server = serve(directory.path());
    let tcp = server.addresses()[0].to_string();
    let socket = directory.path().join("socket").display().to_string();
    let other = Client::open(&Options::new([&tcp])).expect("a client");
    other.set("other", "kept", ()).expect("a set");
    let workloads = [
        W::FillSeq,
        W::FillRandom,
        W::Overwrite,
        W::ReadRandom,
        W::ReadMissing,
        W::ReadWhileWriting,
        W::Mixed,
        W::YcsbLoad,
        W::YcsbA,
        W::YcsbB,
        W::YcsbC,
        W::YcsbD,
        W::YcsbF,
        W::YcsbMixed,
        W::DeleteRandom,
    ];
    for (address, transport, shown) in [
        (&tcp, Transport::Auto, "over TCP"),
        (&socket, Transport::Socket, "over Unix socket"),
        (&socket, Transport::SharedMemory, "over shared memory"),
        (&socket, Transport::Auto, "over shared memory"),
    ] {
        let options = options(address, transport, &workloads);
        let result = run(&options, &ServedFactory::new(address, &options)).expect("a run");
        assert!(result.store.ends_with(shown) && result.store.starts_with(address), "{}", result.store);
        for (phase, workload) in result.phases.iter().zip(workloads) {
            assert!(phase.operations >= 500, "{workload}");
            assert!(phase.latencies.iter().all(|latency| latency.p50_ns > 0 && latency.p99_ns >= latency.p50_ns));
            assert_eq!((phase.write_amplification, phase.space_amplification), (None, None));
        }
        let phase = |workload: W| result.phase(&workload.to_string()).expect("a phase");
        // The keys of fillseq are still there after fillrandom.
        assert_eq!((phase(W::ReadRandom).found, phase(W::ReadRandom).missed), (1000, 0));
        assert_eq!((phase(W::ReadMissing).found, phase(W::ReadMissing).missed), (0, 1000));
        assert_eq!(phase(W::YcsbC).missed, 0);
        assert!(phase(W::YcsbC).stats.detail["curr_items"] >= 1000.0);
    }
    assert_eq!(other.get("other").expect("a get").expect("an item").value, b"kept");
    // Records of the runs before.
    let mut again = options(&tcp, Transport::Auto, &[W::YcsbC]);
    assert!(matches!(run(&again, &ServedFactory::new(&tcp, &again)), Err(Error::Options(_))), "records are needed");
    again.existing = true;
    let result = run(&again, &ServedFactory::new(&tcp, &again)).expect("a run");
    assert_eq!(result.phases[0].missed, 0);
    assert!(!Path::new("situ-bench-data").exists());
}

#[test]
fn a_server_is_driven_over_tls() {
    let directory = tempfile::tempdir().expect("a directory");
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| directory.path().join(name));
    std::fs::write(&certificate, made.cert.pem()).expect("a file");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    let server_options = ServerOptions {
        listen: vec!["127.0.0.1:0".parse().expect("an address")],
        tls: Some(TlsFiles { certificate: certificate.clone(), key, client_ca: None }),
        ..ServerOptions::default()
    };
    let cache = CacheEngine::new(&situ::cache::Options::of_memory(64 << 20)).expect("a cache");
    let server = Server::start(&server_options, Arc::new(cache)).expect("a server");
    let address = server.addresses()[0].to_string();
    let mut options = options(&address, Transport::Auto, &[Workload::FillSeq, Workload::ReadRandom]);
    options.tls_ca = Some(certificate);
    let result = run(&options, &ServedFactory::new(&address, &options)).expect("a run");
    assert!(result.store.ends_with("over TLS"), "{}", result.store);
    assert_eq!(result.phase("readrandom").expect("a phase").found, 1000);
}

#[test]
fn a_server_that_is_not_there_is_an_error_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let address = directory.path().join("socket").display().to_string();
    let missing = options(&address, Transport::Auto, &[Workload::FillSeq]);
    let error = run(&missing, &ServedFactory::new(&address, &missing)).expect_err("there is no server").to_string();
    assert!(error.contains(&address), "{error}");
    let error = run(&missing, &MemoryFactory::default()).expect_err("another store").to_string();
    assert!(error.contains("--connect"), "{error}");
}
