//! Measures the latency of SET and GET over shared memory, a Unix socket and TCP: one request at a time, one client.
//!
//! `cargo run --release -p situ-transport --example ring_latency -- UNIX_SOCKET HOST:PORT [SECONDS]`

use situ_transport::ClientEnd;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const SIZES: [usize; 9] = [8, 100, 1000, 4096, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10];
const KEYS: usize = 100;

trait Wire {
    fn send(&mut self, bytes: &[u8]);
    fn receive(&mut self, into: &mut [u8]);
}

struct Stream<S>(S);

impl<S: Read + Write> Wire for Stream<S> {
    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the server takes a request");
    }

    fn receive(&mut self, into: &mut [u8]) {
        self.0.read_exact(into).expect("the server answers");
    }
}

impl Wire for ClientEnd {
    fn send(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let sent = self.write(bytes).expect("the server keeps to the protocol");
            bytes = &bytes[sent..];
            if sent == 0 {
                self.wait(Instant::now() + Duration::from_secs(10)).expect("the server makes room");
            }
        }
    }

    fn receive(&mut self, into: &mut [u8]) {
        let mut done = 0;
        while done < into.len() {
            let bytes = self.read(&mut into[done..]).expect("the server keeps to the protocol");
            done += bytes;
            if bytes == 0 {
                self.wait(Instant::now() + Duration::from_secs(10)).expect("the server answers");
            }
        }
    }
}

/// Returns microseconds at the median and at 99%.
fn measure(seconds: f64, mut one: impl FnMut(usize)) -> (f64, f64) {
    (0..KEYS).for_each(&mut one);
    let (begin, mut times) = (Instant::now(), Vec::new());
    while begin.elapsed().as_secs_f64() < seconds {
        let at = Instant::now();
        one(times.len());
        times.push(at.elapsed());
    }
    times.sort();
    let micros = |share: f64| times[(times.len() as f64 * share) as usize].as_secs_f64() * 1e6;
    (micros(0.5), micros(0.99))
}

fn row(name: &str, bytes: usize, wire: &mut dyn Wire, seconds: f64) {
    let value = vec![b'v'; bytes];
    let sets: Vec<Vec<u8>> =
        (0..KEYS).map(|key| [format!("set k{key:03} 0 0 {bytes}\r\n").as_bytes(), &value, b"\r\n"].concat()).collect();
    let mut stored = [0; 8];
    let set = measure(seconds, |at| {
        wire.send(&sets[at % KEYS]);
        wire.receive(&mut stored);
        assert_eq!(&stored, b"STORED\r\n");
    });
    let mut answer = vec![0; format!("VALUE k000 0 {bytes}\r\n\r\nEND\r\n").len() + bytes];
    let get = measure(seconds, |at| {
        wire.send(format!("get k{:03}\r\n", at % KEYS).as_bytes());
        wire.receive(&mut answer);
    });
    assert!(answer.starts_with(b"VALUE k") && answer.ends_with(b"v\r\nEND\r\n"));
    println!("{name}\t{bytes}\t{:.2}\t{:.2}\t{:.2}\t{:.2}", set.0, set.1, get.0, get.1);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, address, rest @ ..] = &arguments[..] else {
        eprintln!("usage: ring_latency UNIX_SOCKET HOST:PORT [SECONDS]");
        std::process::exit(2);
    };
    let seconds = rest.first().map_or(1.0, |text| text.parse().expect("a number of seconds"));
    let socket = UnixStream::connect(path).expect("the server's Unix socket");
    let deadline = Instant::now() + Duration::from_secs(10);
    let shared = ClientEnd::upgrade(socket.into(), 1 << 20, deadline).expect("an answer");
    let mut shared = shared.expect("the server offers shared memory");
    let mut unix = Stream(UnixStream::connect(path).expect("the server's Unix socket"));
    let tcp = TcpStream::connect(address).expect("the server's address");
    tcp.set_nodelay(true).expect("an option of TCP");
    let mut tcp = Stream(tcp);
    println!("transport\tvalue bytes\tset median us\tset p99 us\tget median us\tget p99 us");
    for bytes in SIZES {
        row("shared memory", bytes, &mut shared, seconds);
        row("Unix socket", bytes, &mut unix, seconds);
        row("TCP", bytes, &mut tcp, seconds);
    }
}
