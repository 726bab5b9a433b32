//! Measures the latency of SET and GET: one client, one request at a time, a server in another process.
//!
//! `cargo run --release -p situ-client --example latency -- ADDRESS [TRANSPORT [SECONDS [BYTES,BYTES,...]]]`
//!
//! The transport is `auto`, `socket` or `shared-memory`. The numbers of bytes are sizes of values. Each case has 100
//! keys, and requests go through them in order. Each line of the output is a case, as an object of JSON. Times are in
//! microseconds. COPY and WAKE-UP are floors: the copy of a value, and half of a byte's trip to a sleeping thread and
//! back.

use situ_client::{Client, Error, Options, TransportChoice};
use std::error::Error as StdError;
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

const VALUE_BYTES: [usize; 4] = [32, 512, 1 << 10, 4 << 10];
const KEYS: usize = 100;

/// Requests that are not counted, before each case.
const WARM_UP: usize = 1000;

fn measure<E>(seconds: f64, mut request: impl FnMut(usize) -> Result<(), E>) -> Result<Vec<Duration>, E> {
    (0..WARM_UP).try_for_each(&mut request)?;
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed().as_secs_f64() < seconds {
        let at = Instant::now();
        request(times.len())?;
        times.push(at.elapsed());
    }
    times.sort();
    Ok(times)
}

fn print(server: &str, transport: &str, operation: &str, bytes: usize, times: &[Duration], trips: f64) {
    let micros = |share: f64| times[(times.len() as f64 * share) as usize].as_secs_f64() * 1e6 / trips;
    println!(
        "{{\"server\": {server:?}, \"transport\": {transport:?}, \"operation\": {operation:?}, \"value_bytes\": {bytes}, \
         \"requests\": {}, \"p50_us\": {:.2}, \"p99_us\": {:.2}}}",
        times.len(),
        micros(0.5),
        micros(0.99),
    );
}

/// Measures a wake-up: a byte goes to a thread that sleeps on a socket, and comes back.
fn wake_ups(seconds: f64) -> Result<Vec<Duration>, std::io::Error> {
    let (mut here, mut there) = UnixStream::pair()?;
    let echo = thread::spawn(move || {
        let mut byte = [0];
        while there.read_exact(&mut byte).and_then(|()| there.write_all(&byte)).is_ok() {}
    });
    let times = measure(seconds, |_| here.write_all(&[0]).and_then(|()| here.read_exact(&mut [0])))?;
    drop(here);
    echo.join().expect("the thread does not panic");
    Ok(times)
}

fn main() -> Result<(), Box<dyn StdError>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, rest @ ..] = &arguments[..] else {
        return Err("usage: latency ADDRESS [TRANSPORT [SECONDS [BYTES,BYTES,...]]]".into());
    };
    let mut options = Options::new([address]);
    options.transport = match rest.first().map_or("auto", String::as_str) {
        "auto" => TransportChoice::Auto,
        "socket" => TransportChoice::Socket,
        "shared-memory" => TransportChoice::SharedMemory,
        other => return Err(format!("{other} is no transport: write auto, socket or shared-memory").into()),
    };
    let seconds: f64 = rest.get(1).map_or(Ok(2.0), |text| text.parse())?;
    if !(seconds > 0.0 && seconds < 1e6) {
        return Err("SECONDS must be above 0".into());
    }
    let sizes: Vec<usize> = match rest.get(2) {
        Some(list) => list.split(',').map(str::parse).collect::<Result<_, _>>()?,
        None => VALUE_BYTES.to_vec(),
    };
    let client = Client::open(&options)?;
    let keys: Vec<String> = (0..KEYS).map(|key| format!("latency:{key}")).collect();
    let mut found = Vec::new();
    for bytes in sizes {
        let value = vec![b'v'; bytes];
        let set = measure(seconds, |n| client.set(&keys[n % KEYS], &value, ()))?;
        let get = measure(seconds, |n| {
            client.get_into(&keys[n % KEYS], &mut found)?;
            assert_eq!(found.len(), bytes, "the server has lost an item");
            Ok::<(), Error>(())
        })?;
        let (server, transport) = client.transports().remove(0);
        let transport = transport.map(|transport| transport.to_string()).unwrap_or_default();
        print(&server, &transport, "SET", bytes, &set, 1.0);
        print(&server, &transport, "GET", bytes, &get, 1.0);
        let copy = measure(seconds / 10.0, |_| {
            found.clear();
            found.extend_from_slice(black_box(&value));
            black_box(&mut found);
            Ok::<(), Error>(())
        })?;
        print("", "", "COPY", bytes, &copy, 1.0);
    }
    print("", "", "WAKE-UP", 1, &wake_ups(seconds / 10.0)?, 2.0);
    Ok(())
}
