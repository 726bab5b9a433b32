//! `top`, and the live page of a server in a real browser: Chromium, where it is installed.
//!
//! The browser is driven by its protocol for tools over two pipes, so the test needs no driver and no port.
//! `SITU_SCREENSHOTS=DIR` keeps the pictures.

use crate::block_devices::skipped;
use crate::common::{Serving, program, situ};
use base64::Engine as _;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest wait for the browser.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client that sets and gets until it is dropped.
struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    fn on(serving: &Serving) -> Load {
        let (stop, mut connection) = (Arc::new(AtomicBool::new(false)), serving.connect());
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            for n in (0..2000).cycle() {
                let commands = format!("set key{n} 0 0 100\r\n{n:0100}\r\nget key{n}\r\n");
                connection.get_mut().write_all(commands.as_bytes()).unwrap();
                for _ in 0..4 {
                    assert_ne!(connection.read_line(&mut String::new()).unwrap(), 0);
                }
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        Load { stop, thread: Some(thread) }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(std::thread::panicking() || ended.is_ok(), "the load has failed");
    }
}

#[test]
fn top_shows_each_engine_once_and_as_json() {
    for (options, engine, part) in [
        (&["store"][..], "ordered store", "\n  block cache "),
        (&["--engine", "hash", "hashed"], "hash store", "\n  buckets "),
        (&["--engine", "cache", "--memory", "64M"], "cache", "\n  cache "),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let serving = Serving::start(at, options);
        let load = Load::on(&serving);
        let http = serving.http.to_string();
        let text = situ(at, &["top", &http, "--once"]).done().text();
        assert!(
            text.starts_with(&format!("Situ {} at {http}, {engine}, up for ", env!("CARGO_PKG_VERSION"))),
            "{text}"
        );
        assert!(text.contains(part) && !text.contains('\x1b'), "{text}");
        let line = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap().to_owned();
        assert!(!line("commands").contains(" 0/s, ") && line("commands").contains("100% of keys found"), "{text}");
        for class in ["read", "store"] {
            assert!(line(class).contains("/s   median ") && line(class).contains("s   99.9% "), "{text}");
        }
        let figures = situ(at, &["top", &http, "--once", "--json"]).done().json();
        assert!(figures["metrics"]["situ_server_get_hits_total"][0]["value"].as_f64() > Some(0.0), "{figures}");
        drop(load);
    }
}

/// The server of a store has written its address there. In a pipe, reports follow each other until the reader goes.
#[test]
fn top_finds_the_server_of_a_directory_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let failed = situ(at, &["top", "."]);
    assert!(failed.code == 1 && failed.stderr.contains("OPTIONS.toml"), "{failed:?}");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let failed = situ(at, &["top", &free]);
    assert!(failed.code == 1 && failed.stderr.contains(&free), "{failed:?}");
    let mut server = program(at);
    server.args(["serve", "--listen", "127.0.0.1:0", "--http", &free, "store"]);
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let banner = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let banner: Vec<String> = banner.take_while(|line| !line.starts_with("Ctrl-C")).collect();
    assert!(banner.iter().any(|line| line.contains("live page") && line.contains(&free)), "{banner:?}");
    let mut top = program(at);
    let mut top = top.args(["top", "store"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(top.stdout.take().unwrap()).lines().map(Result::unwrap);
    let heads = lines.filter(|line| line.contains(&format!(" at {free}, ordered store, "))).take(2).count();
    assert_eq!(heads, 2);
    // Its next report finds that the pipe is closed, which is no failure.
    assert!(top.wait().unwrap().success());
    server.kill().unwrap();
    server.wait().unwrap();
}

/// A tab of a headless browser.
struct Browser {
    child: Child,
    requests: File,
    messages: Receiver<Value>,
    session: Option<String>,
    number: u64,
    /// The events that came between answers.
    events: Vec<Value>,
}

impl Browser {
    /// Starts Chromium with its files in `directory`; `None` if it is not installed.
    fn start(directory: &Path) -> Option<Browser> {
        Command::new("chromium").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
        let pipes = ["requests", "messages"].map(|name| directory.join(name));
        assert!(Command::new("mkfifo").args(&pipes).status().unwrap().success());
        // Root has no sandbox there. The pipes are descriptors 3 and 4.
        let script = "exec chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run \
                      --user-data-dir=profile --remote-debugging-pipe --window-size=1400,1000 3<requests 4>messages";
        let child =
            Command::new("sh").args(["-c", script]).current_dir(directory).stderr(Stdio::null()).spawn().unwrap();
        let requests = File::options().write(true).open(&pipes[0]).unwrap();
        let mut answers = BufReader::new(File::open(&pipes[1]).unwrap());
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while answers.read_until(0, &mut message).is_ok_and(|length| length > 1) {
                let parsed = serde_json::from_slice(&message[..message.len() - 1]).unwrap();
                if sender.send(parsed).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut browser = Browser { child, requests, messages, session: None, number: 0, events: Vec::new() };
        let tab = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let tab = json!({ "targetId": tab["targetId"], "flatten": true });
        browser.session = browser.call("Target.attachToTarget", tab)["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut request = json!({ "id": self.number, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            request["sessionId"] = session.as_str().into();
        }
        self.requests.write_all(format!("{request}\0").as_bytes()).unwrap();
        loop {
            let message = self.messages.recv_timeout(PATIENCE);
            let message = message.unwrap_or_else(|error| panic!("the browser does not answer {method}: {error}"));
            if message["id"] == self.number {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    /// Returns the value of an expression in the page.
    fn value(&mut self, expression: &str) -> Value {
        let answer = self.call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }));
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    fn wait_for(&mut self, expression: &str) {
        let begun = Instant::now();
        while self.value(expression) != true {
            let text = || "document.body ? document.body.innerText : ''";
            assert!(begun.elapsed() < PATIENCE, "{expression} is not true of:\n{}", self.value(text()));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn events(&self, method: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["method"] == method).collect()
    }

    /// Takes a picture of the whole page, and returns its bytes.
    fn screenshot(&mut self, name: &str) -> Vec<u8> {
        // The page before may have been taller.
        self.call("Emulation.clearDeviceMetricsOverride", json!({}));
        let size = self.call("Page.getLayoutMetrics", json!({}))["cssContentSize"].clone();
        let size = json!({ "width": 1400, "height": size["height"], "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        // The page draws again in its next turn.
        std::thread::sleep(Duration::from_millis(1200));
        let answer = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let png = base64::engine::general_purpose::STANDARD.decode(answer["data"].as_str().unwrap()).unwrap();
        if let Some(directory) = std::env::var_os("SITU_SCREENSHOTS") {
            fs::write(Path::new(&directory).join(format!("{name}.png")), &png).unwrap();
        }
        png
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns an expression: some text of an element of the page matches.
fn text_matches(id: &str, pattern: &str) -> String {
    format!("/{pattern}/.test((document.getElementById('{id}') || {{}}).textContent)")
}

#[test]
fn a_browser_shows_a_server_under_load() {
    let place = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(place.path()) else {
        return skipped("chromium is not installed (Debian: apt-get install chromium)");
    };
    let shown = "shown = ids => ids.filter(id => !document.getElementById(id).hidden).join()";
    for (name, options, engine, cards) in [
        (
            "ordered",
            &["store", "--fast-disk", "fast"][..],
            "ordered store",
            "levels-card,memory-card,disk-card,compactions",
        ),
        ("hash", &["--engine", "hash", "hashed"], "hash store", "memory-card,disk-card"),
        ("cache", &["--engine", "cache", "--memory", "64M"], "cache", "memory-card"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let serving = Serving::start(at, options);
        let load = Load::on(&serving);
        if name == "ordered" {
            for _ in 0..2 {
                situ(at, &["flush", "store"]).done();
            }
            situ(at, &["compact", "store"]).done();
        }
        browser.events.clear();
        let page = format!("http://{}/", serving.http);
        browser.call("Page.navigate", json!({ "url": page }));
        browser.wait_for(&text_matches("state", &format!("^{engine}, version ")));
        browser.wait_for(&text_matches("throughput-now", "read [1-9].*store [1-9]"));
        browser
            .wait_for(&text_matches("reads-now", "median ─ [0-9.]+ [µm]s.*99% ╌ [0-9.]+ [µm]s.*99.9% [0-9.]+ [µm]?s"));
        browser.wait_for(&text_matches("writes-now", "median ─ [0-9.]+ [µm]s"));
        browser.wait_for(&text_matches("tiles", "commands[1-9].*keys found100%"));
        let of_page = browser.value(&format!("({shown})(['levels-card', 'memory-card', 'disk-card', 'compactions'])"));
        assert_eq!(of_page, cards, "{name}");
        // Charts have ink: not all of their pixels are alike.
        for chart in ["throughput", "traffic", "reads", "writes"] {
            browser.wait_for(&format!(
                "(() => {{ const c = document.getElementById('{chart}'), d = new Uint32Array(c.getContext('2d')\
                 .getImageData(0, 0, c.width, c.height).data.buffer); return new Set(d).size > 8; }})()"
            ));
        }
        if name == "ordered" {
            browser.wait_for(&text_matches("levels", "level 0.*(1|2) tables?.*fast disk.*capacity disk"));
            browser.wait_for("document.querySelectorAll('#levels .fast').length > 1");
            browser.wait_for(&text_matches("units", "cpu.*in service.*attempts? done"));
        }
        let mut pictures = Vec::new();
        for scheme in ["light", "dark"] {
            let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
            browser.call("Emulation.setEmulatedMedia", media);
            let picture = browser.screenshot(&format!("{name}-{scheme}"));
            assert!(picture.starts_with(b"\x89PNG") && picture.len() > 20_000, "{name}: {} bytes", picture.len());
            pictures.push(picture);
        }
        assert_ne!(pictures[0], pictures[1]);

        // A page that is paused asks for nothing.
        let asked = |browser: &Browser| browser.events("Network.requestWillBeSent").len();
        browser.value("document.getElementById('pause').click()");
        std::thread::sleep(Duration::from_millis(300));
        browser.wait_for(&text_matches("state", "^paused$"));
        let before = asked(&browser);
        std::thread::sleep(Duration::from_secs(3));
        browser.value("0");
        assert_eq!(asked(&browser), before, "{name}");
        browser.value("document.getElementById('pause').click()");
        browser.wait_for(&text_matches("state", &format!("^{engine}, ")));
        assert!(asked(&browser) > before && before > 3, "{name}: {before} requests");

        for event in browser.events("Network.requestWillBeSent") {
            let url = event["params"]["request"]["url"].as_str().unwrap();
            assert!(url.starts_with(&page) || url.starts_with("data:"), "the page asks {url}");
        }
        let troubles = [browser.events("Runtime.exceptionThrown"), browser.events("Log.entryAdded")].concat();
        assert!(troubles.is_empty(), "{name}: {troubles:?}");
        // Else the page would miss its server while the next one is shown.
        browser.call("Page.navigate", json!({ "url": "about:blank" }));
        drop(load);
    }
}

/// A server that goes and comes back is shown again, from its new beginning.
#[test]
fn a_page_outlives_its_server() {
    let place = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(place.path()) else {
        return skipped("chromium is not installed (Debian: apt-get install chromium)");
    };
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let start = || {
        let mut server = program(place.path());
        server.args(["serve", "--listen", "127.0.0.1:0", "--http", &free, "store"]);
        let mut server = server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut first = [0];
        server.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        server
    };
    let mut server = start();
    browser.call("Page.navigate", json!({ "url": format!("http://{free}/") }));
    browser.wait_for("document.getElementById('state')?.className == 'live'");
    server.kill().unwrap();
    server.wait().unwrap();
    browser.wait_for("document.getElementById('state')?.className == 'lost'");
    browser.wait_for(&text_matches("state", "^no answer "));
    let mut server = start();
    browser.wait_for("document.getElementById('state')?.className == 'live'");
    browser.wait_for(&text_matches("tiles", "commands0"));
    assert_eq!(browser.events("Runtime.exceptionThrown").len(), 0);
    server.kill().unwrap();
    server.wait().unwrap();
}
