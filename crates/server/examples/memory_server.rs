//! A memcached server over a map in memory: what an engine has to provide, and a way to measure the server alone.
//!
//! ```sh
//! cargo run --release -p situ-server --example memory_server -- 127.0.0.1:11211 127.0.0.1:9150
//! ```

#[path = "../tests/memory/mod.rs"]
mod memory;

use std::time::Duration;

use situ_server::{Server, ServerOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut options = ServerOptions::default();
    if let Some(address) = arguments.next() {
        options.listen = vec![address.parse()?];
    }
    if let Some(address) = arguments.next() {
        options.http = Some(address.parse()?);
    }
    let server = Server::start(&options, memory::MemoryEngine::start(None))?;
    eprintln!("serving {:?}, http {:?}", server.addresses(), server.http_address());
    let signal = server.wait_for_signal(|| eprintln!("hangup: nothing to reopen"))?;
    eprintln!("{signal:?}: stopping");
    server.stop(Duration::from_secs(10));
    Ok(())
}
