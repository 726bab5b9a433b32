//! `serve`: the store to memcached clients.
//!
//! 1. Signals are caught, the log file and the store are opened, the addresses are taken; each failure says what to do.
//! 2. Where everything is is printed, with commands to try.
//! 3. SIGHUP opens the log file again, and reads the options again: those in [`RELOADED`] change at once, and the log
//!    names the others that wait for a restart. Bad options change nothing.
//! 4. SIGTERM or SIGINT end the server: commands that were read are answered, then the store is closed, which makes
//!    everything durable.

mod messages;
mod pin;

use crate::DONE;
use crate::administrator::Commands;
use crate::config;
use crate::failure::{Failure, Outcome};
use crate::hash;
use crate::options::settings::{self, InForce, Unread};
use crate::options::{
    AdmissionName, Command, EngineName, FOLLOWED, FlashChoice, Listen, MemorySize, Program, ServeOptions,
};
use crate::output::Output;
use crate::store::durability;
use crate::text;
use crate::verifying::{Schedule, Verifying};
use crate::watch::NodeWatch;
use messages::Messages;
use serde::Serialize;
use situ::hash::HashStoreBuilder;
use situ::{Options, StoreBuilder, VALUE_LOG_MIN_BYTES, cache};
use situ_base::lock;
use situ_server::{
    AdminSocket, CacheEngine, CaughtSignals, Engine, FOLLOWS_BYTES_MIN, HashEngine, OnTrouble, Server, ServerOptions,
    StartError, StopSignal, StoreEngine, TlsFiles,
};
use situ_tiers::TieredBuilder;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The longest wait of the end for a node that is lost.
const LOST_NODE_DEADLINE: Duration = Duration::from_secs(3);
/// The longest time for clients to collect their last answers.
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// The longest wait of the end for commands, after clients have collected their last answers.
const COMMAND_DEADLINE: Duration = Duration::from_secs(5);

/// The seconds that a write waits for a lost node, unless the options say otherwise.
const NODE_PATIENCE_S: u64 = 600;
/// The milliseconds from which on an operation is slow, unless the options say otherwise.
const SLOW_MS: u64 = 100;
/// Memory for caches, unless the options say otherwise.
const MEMORY_BYTES: u64 = 256 << 20;
/// The least memory of a cache: the program itself takes up to 16 MiB.
const CACHE_BYTES_MIN: u64 = 32 << 20;
/// The least memory of a cache on flash: segments that are written take 7 MiB.
const FLASH_MEMORY_BYTES_MIN: usize = 64 << 20;

/// Options that SIGHUP changes.
const RELOADED: [&str; 12] = [
    "auth-file",
    "rights-file",
    "tls-cert",
    "tls-key",
    "tls-client-ca",
    "allow-anonymous",
    "admin-token-file",
    "idle-timeout-s",
    "max-connections",
    "log-file",
    "verify-every",
    "verify-rate",
];

pub(crate) fn serve(options: &ServeOptions, out: &mut Output) -> Outcome {
    if options.engine.engine == Some(EngineName::Cache) {
        return serve_cache(options, out);
    }
    let home = options.directory.home();
    match options.engine.is_hash(home.path(), home.kind())? {
        true => serve_hash(options, home.path(), out),
        false => serve_ordered(options, out),
    }
}

/// Removes the notes of a copy: a store that clients write to is its source's copy no more.
fn follow_no_more(store: &situ::Store, directory: &Path, serving: &Serving) -> Result<(), Failure> {
    match store.drop_keyspace(FOLLOWED) {
        Ok(()) => serving.messages.line("the store was a copy, and follows its source no more"),
        Err(situ::Error::NoSuchKeyspace { .. }) => {}
        Err(error) => return Err(Failure::store("cannot make a store of the copy", directory, &error)),
    }
    Ok(())
}

fn serve_ordered(options: &ServeOptions, out: &mut Output) -> Outcome {
    options.check_without_flash()?;
    let serving = Serving::prepare(options, out.is_json())?;
    let watch = watch_by(&serving.messages, options.node_patience.unwrap_or(NODE_PATIENCE_S));
    let home = options.directory.home().watched(&watch);
    if home.is_on_node() {
        options.check_without_commands("a store on a node")?;
    }
    let directory = home.path();
    let mut store_options = Options::default();
    let messages = Arc::clone(&serving.messages);
    let offload = options.compaction.offload().map_err(Failure::usage)?;
    let offload = offload.listener(move |event| messages.line(&event.to_string()));
    store_options.durability = durability(options.sync);
    store_options.changes_kept_bytes = options.keep_changes;
    store_options.cache_bytes = options.store_memory()?.unwrap_or(MEMORY_BYTES);
    store_options.keyspace.value_log_min_bytes =
        options.value_log_min.or_else(|| options.value_log.then_some(VALUE_LOG_MIN_BYTES));
    let slow_ms = options.slow_ms.unwrap_or(SLOW_MS);
    store_options.slow_operation = (slow_ms > 0).then(|| Duration::from_millis(slow_ms));
    store_options.listener = Some(Arc::clone(&serving.messages) as _);
    let env = options.pin.then(pin::pinned).transpose()?;
    let engine = StoreEngine::open_by(store_options, |builder| {
        let builder = env.into_iter().fold(builder, StoreBuilder::env);
        let builder = options.fast_disk.iter().fold(builder, TieredBuilder::fast_disk);
        home.open_with(builder, offload)
    });
    let engine = engine.map_err(|error| {
        Failure::store(format!("cannot open the store in {}", directory.display()), directory, &error)
    })?;
    let engine = Arc::new(engine.with_beside(Arc::clone(&watch) as _));
    follow_no_more(engine.store(), directory, &serving)?;
    let place = match home.is_on_node() {
        true => directory.to_owned(),
        false => std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned()),
    };
    if !home.is_on_node() {
        serving.store_options(&place, &options.in_force);
    }
    let (messages, verified) = (Arc::clone(&serving.messages), (!home.is_on_node()).then(|| place.clone()));
    let tell = move |line: &str| messages.line(line);
    let verifying = Verifying::start(engine.store().clone(), verified, schedule(options), tell)
        .map_err(|error| Failure::new("cannot start the thread that verifies the store", error))?;
    let admin = if home.is_on_node() { None } else { serving.take_commands(engine.store(), &place) };
    let admin = Mutex::new(admin);
    serving.run(
        &engine,
        &Shown { place: Place::Directory(&place), metrics: "situ_store" },
        &Hooks {
            begun: &|server| lock(&admin).iter().for_each(|admin| server.administer(admin)),
            reloaded: &|options| {
                if verifying.change(schedule(options)) {
                    let every = options.verify_every.map(|hours| format!("each {hours} hours"));
                    let every = every.unwrap_or_else(|| "never".to_owned());
                    serving.messages.line(&format!("the store is verified {every}"));
                }
            },
            ending: &|| {
                watch.hurry(LOST_NODE_DEADLINE);
                lock(&admin).iter_mut().for_each(AdminSocket::refuse);
            },
        },
        out,
    )?;
    let admin = admin.into_inner().unwrap_or_else(PoisonError::into_inner);
    if admin.as_ref().is_some_and(|admin| !admin.wait(COMMAND_DEADLINE)) {
        serving.messages.line("the end of the store cuts off commands that still run");
    }
    verifying.stop();
    let closed = engine.close();
    drop(admin);
    verifying.join();
    closed.map_err(|error| Failure::store("cannot close the store", directory, &error))?;
    serving.messages.line("stopped; everything is durable");
    DONE
}

/// Returns the schedule of verifications that the options ask for.
fn schedule(options: &ServeOptions) -> Option<Schedule> {
    let every_s = u64::from(options.verify_every?) * 3600;
    Some(Schedule { every_s, bytes_per_s_max: options.verify_rate })
}

fn serve_hash(options: &ServeOptions, directory: &Path, out: &mut Output) -> Outcome {
    options.check_for_hash()?;
    let serving = Serving::prepare(options, out.is_json())?;
    let messages = Arc::clone(&serving.messages);
    let tell = move |event: &situ::hash::HashEvent| messages.line(&event.to_string());
    let builder = hash::builder(options.engine.buckets.as_deref(), true).on_event(Arc::new(tell));
    let env = options.pin.then(pin::pinned).transpose()?;
    let builder = env.into_iter().fold(builder, HashStoreBuilder::env);
    let engine = HashEngine::open(directory, builder, durability(options.sync)).map_err(|error| {
        Failure::hash(format!("cannot open the store in {}", directory.display()), directory, &error)
    })?;
    let engine = Arc::new(engine);
    let place = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    serving.store_options(&place, &options.in_force);
    serving.run(&engine, &Shown { place: Place::Directory(&place), metrics: "situ_hash" }, &Hooks::NONE, out)?;
    let closed = engine.store().close();
    closed.map_err(|error| Failure::hash("cannot close the store", directory, &error))?;
    serving.messages.line("stopped; everything is durable");
    DONE
}

fn serve_cache(options: &ServeOptions, out: &mut Output) -> Outcome {
    options.check_for_cache()?;
    let (memory, least) = match options.memory {
        None => (MEMORY_BYTES, MEMORY_BYTES),
        Some(MemorySize::Bytes(bytes)) => (bytes, bytes),
        Some(MemorySize::Auto) => {
            let all = situ_server::machine_memory_bytes();
            let all =
                all.ok_or_else(|| Failure::new("--memory auto", "the system does not say how much memory it has"))?;
            (all - all / 10, FOLLOWS_BYTES_MIN)
        }
    };
    if memory < CACHE_BYTES_MIN {
        return Err(Failure::usage(format!("a cache needs --memory {}M or more", CACHE_BYTES_MIN >> 20)));
    }
    let memory = usize::try_from(memory).map_err(Failure::usage)?;
    let longest = CacheEngine::value_bytes_max(usize::try_from(least).map_err(Failure::usage)?);
    if options.max_value > longest {
        return Err(Failure::usage(format!(
            "with --memory {} a value has at most {longest} bytes; give more memory, or a smaller --max-value",
            if least < memory as u64 { "auto".to_owned() } else { text::bytes(memory as u64) }
        )));
    }
    let serving = Serving::prepare(options, out.is_json())?;
    let mut cache_options = cache::Options::of_memory(memory);
    if options.flash.flash_admission == Some(AdmissionName::Read) {
        cache_options.flash.admission = cache::Admission::Read;
    }
    let flash = options.flash.flash.as_deref();
    let engine = match flash {
        Some(path) => cache_on_flash(&cache_options, path, &options.flash, &serving.messages)?,
        None => CacheEngine::new(&cache_options).map_err(|error| Failure::new("cannot make the cache", error))?,
    };
    if options.memory == Some(MemorySize::Auto) {
        engine.follow_pressure();
    }
    let engine = Arc::new(engine);
    let outlives = engine.properties().flash.is_some_and(|flash| flash.outlives);
    let place = Place::Cache { memory_bytes: memory as u64, flash, outlives };
    serving.run(&engine, &Shown { place, metrics: "situ_cache" }, &Hooks::NONE, out)?;
    if !outlives {
        serving.messages.line("stopped; the items are gone");
        return DONE;
    }
    serving.messages.line("writing the items in memory to flash");
    engine.stop().map_err(|error| Failure::new("the next start does not find the items", error))?;
    serving.messages.line("stopped; the next start finds the items");
    DONE
}

/// Opens a cache in memory and on flash.
fn cache_on_flash(
    options: &cache::Options,
    path: &Path,
    choice: &FlashChoice,
    messages: &Arc<Messages>,
) -> Result<CacheEngine, Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(format!("cannot use the flash {}", path.display()), error);
    if options.memory_bytes < FLASH_MEMORY_BYTES_MIN {
        return Err(Failure::usage(format!(
            "a cache on flash needs --memory {}M or more",
            FLASH_MEMORY_BYTES_MIN >> 20
        )));
    }
    let is_new = make_file(path, choice.flash_size)?;
    let opened = situ_device::open(path, situ_device::OpenOptions::default()).map_err(|error| failed(&error));
    let is_file = path.metadata().is_ok_and(|found| found.is_file());
    let opened = opened.and_then(|device| {
        if is_file {
            device.reserve().map_err(|error| failed(&error))?;
        }
        let files = choice.flash_journal.clone().or_else(|| is_file.then(|| path.to_owned()));
        let flash = cache::Flash { device, env: situ_base::Env::system(), files };
        let told = Arc::clone(messages);
        let tell: OnTrouble = Box::new(move |text| told.line(text));
        CacheEngine::with_flash(options, flash, tell).map_err(|error| failed(&error))
    });
    let (engine, start) = opened.inspect_err(|_| {
        // A file that was made for nothing goes again.
        if is_new {
            _ = std::fs::remove_file(path);
        }
    })?;
    let items = text::count(engine.properties().items);
    messages.line(&match start {
        cache::Start::Resumed => format!("found {items} items on flash, as an earlier process left them"),
        cache::Start::Recovered => format!("found {items} items on flash; the earlier process did not stop in order"),
        _ => "the flash begins empty".to_owned(),
    });
    Ok(engine)
}

/// Makes the file of a cache, if there is to be one and nothing is there. True if it was made.
fn make_file(path: &Path, size: Option<u64>) -> Result<bool, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(format!("cannot make {}", path.display()), error);
    if situ_device::is_pci_name(path) {
        return Ok(false);
    }
    match (path.metadata(), size) {
        (Ok(found), Some(size)) if found.is_file() && found.len() != size => Err(Failure::usage(format!(
            "{} exists and has {}; leave out --flash-size, or remove the file",
            path.display(),
            text::bytes(found.len())
        ))),
        (Ok(found), _) if found.is_file() && found.len() == 0 => Err(Failure::usage(format!(
            "{} exists and is empty; remove it, and --flash-size 10G makes a file of 10G",
            path.display()
        ))),
        (Ok(_), _) => Ok(false),
        (Err(error), Some(size)) if error.kind() == io::ErrorKind::NotFound => {
            let file = File::options().write(true).create_new(true).open(path).map_err(|error| failed(&error))?;
            file.set_len(size).map_err(|error| {
                _ = std::fs::remove_file(path);
                failed(&error)
            })?;
            Ok(true)
        }
        (Err(error), None) if error.kind() == io::ErrorKind::NotFound => {
            Err(Failure::usage(format!("{} does not exist; --flash-size 10G makes a file of 10G", path.display())))
        }
        (Err(error), _) => Err(failed(&error)),
    }
}

/// The inputs of serving, apart from the engine.
struct Serving<'a> {
    options: &'a ServeOptions,
    server_options: ServerOptions,
    signals: Mutex<CaughtSignals>,
    messages: Arc<Messages>,
}

/// The place of the items.
#[derive(Clone, Copy)]
enum Place<'a> {
    Directory(&'a Path),
    Cache { memory_bytes: u64, flash: Option<&'a Path>, outlives: bool },
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Directory(path) => path.display().fmt(f),
            Place::Cache { memory_bytes, flash: None, .. } => {
                write!(f, "a cache in memory, {}", text::bytes(*memory_bytes))
            }
            Place::Cache { memory_bytes, flash: Some(path), .. } => {
                write!(f, "a cache in memory, {}, and on flash, {}", text::bytes(*memory_bytes), path.display())
            }
        }
    }
}

/// The parts of an engine's own in the life of its server.
struct Hooks<'a> {
    /// Called when the server serves.
    begun: &'a dyn Fn(&Server),
    /// Called with the options that were read again.
    reloaded: &'a dyn Fn(&ServeOptions),
    /// Called between the signal that ends the server and its end.
    ending: &'a dyn Fn(),
}

impl Hooks<'_> {
    const NONE: Hooks<'static> = Hooks { begun: &|_| (), reloaded: &|_| (), ending: &|| () };
}

/// The facts to show about a store that is served.
struct Shown<'a> {
    place: Place<'a>,
    /// The prefix of the names of its metrics.
    metrics: &'static str,
}

impl Serving<'_> {
    /// Checks the options, catches signals and opens the log file: before a store is opened.
    fn prepare(options: &ServeOptions, json: bool) -> Result<Serving<'_>, Failure> {
        let server_options = server_options(options);
        server_options.check().map_err(|error| cannot_start(error, options))?;
        let signals = CaughtSignals::catch().map_err(|error| Failure::new("cannot catch signals", error))?;
        let messages = Arc::new(Messages::open(options.log_file.clone(), json)?);
        Ok(Serving { options, server_options, signals: Mutex::new(signals), messages })
    }

    /// Writes the options into the directory of the store.
    fn store_options(&self, directory: &Path, in_force: &[InForce]) {
        if let Err(error) = config::store(directory, in_force) {
            self.messages.line(&format!("warning: the options are not in the store's directory: {error}"));
        }
    }

    /// Takes commands for the store in `directory`. The server goes on without them where it cannot take any.
    fn take_commands(&self, store: &situ::Store, directory: &Path) -> Option<AdminSocket> {
        let messages = Arc::clone(&self.messages);
        let log = Box::new(move |text: &str| messages.line(text));
        let tracer = Arc::clone(&self.server_options.tracer);
        let commands = Commands { store: store.clone(), tracer, directory: directory.to_owned(), log };
        let socket = AdminSocket::listen(directory, commands);
        let failed = |error: &io::Error| {
            let shown = directory.display();
            self.messages.line(&format!(
                "warning: commands such as `situ compact {shown}` do not reach this server: cannot make a socket in {shown}: \
                 {error}"
            ));
        };
        socket.inspect_err(failed).ok()
    }

    /// Serves until a signal comes, and then until clients have their answers.
    fn run(
        &self,
        engine: &Arc<impl Engine>,
        store: &Shown<'_>,
        hooks: &Hooks<'_>,
        out: &mut Output,
    ) -> Result<(), Failure> {
        let Serving { options, messages, .. } = self;
        let server =
            Server::start(&self.server_options, Arc::clone(engine)).map_err(|error| cannot_start(error, options))?;
        (hooks.begun)(&server);
        messages.line(&format!("serving {}", store.place));
        let log = Arc::clone(messages);
        engine.clock().tell(Box::new(move |text| log.line(text)));
        let log = Arc::clone(messages);
        server.tell(Box::new(move |text| log.line(text)));
        for warning in server.warnings() {
            messages.line(&format!("warning: {warning}"));
        }
        let listening = Listening {
            event: "listening",
            directory: match store.place {
                Place::Directory(path) => Some(path.display().to_string()),
                Place::Cache { .. } => None,
            },
            durability: match store.place {
                Place::Cache { outlives: true, .. } => "flash",
                Place::Cache { .. } => "none",
                Place::Directory(_) if options.sync => "synced",
                Place::Directory(_) => "buffered",
            },
            addresses: server.addresses().to_vec(),
            tls: options.tls_cert.is_some(),
            unix_socket: options.unix_socket.clone(),
            http: server.http_address(),
            process: std::process::id(),
        };
        let shown = match out.is_json() {
            true => out.object(&listening),
            false => out.bytes(listening.banner(store).as_bytes()),
        };
        // A reader that went away is no reason to stop serving.
        let _ = shown.and_then(|()| out.finish());
        let signal = match lock(&self.signals).wait(|| self.reload(&server, store, hooks)) {
            StopSignal::Interrupt => "SIGINT",
            StopSignal::Terminate => "SIGTERM",
        };
        messages.line(&format!("{signal}: the server answers the commands that it has read, and stops"));
        (hooks.ending)();
        server.stop(STOP_DEADLINE);
        Ok(())
    }
}

impl Serving<'_> {
    /// Opens the log file again, and takes from the options what can change.
    fn reload(&self, server: &Server, store: &Shown<'_>, hooks: &Hooks<'_>) {
        let messages = &self.messages;
        let refuse = |failure: &Failure| {
            messages.reopen();
            let why = failure.message().map(|message| message.to_string()).unwrap_or_default();
            messages.line(&format!("the options cannot be taken, and all stay as they were: {why}"));
        };
        let options = match settings::parse(std::env::args_os().collect(), std::env::vars_os()) {
            Ok(Program { command: Command::Serve(options), .. }) => options,
            Ok(_) => return refuse(&Failure::usage("they are those of another command")),
            Err(Unread::Clap(error)) => return refuse(&Failure::command_line(&error)),
            Err(Unread::Settings(failure)) => return refuse(&failure),
        };
        let changes = match server.reload(&server_options(&options)) {
            Ok(changes) => changes,
            Err(error) => return refuse(&Failure::new("cannot reload", error)),
        };
        messages.go_on_in(options.log_file.clone());
        changes.iter().for_each(|change| messages.line(change));
        (hooks.reloaded)(&options);
        let (in_force, waiting) = after_reload(&self.options.in_force, &options.in_force);
        if !waiting.is_empty() {
            messages.line(&format!("needs a restart: {}", waiting.join(", ")));
        }
        if let Place::Directory(place) = store.place
            && !place.starts_with("node://")
        {
            self.store_options(place, &in_force);
        }
    }
}

/// Returns the options after a reload, and the names of those that wait for a restart.
fn after_reload(before: &[InForce], now: &[InForce]) -> (Vec<InForce>, Vec<String>) {
    let is_reloaded = |option: &&InForce| RELOADED.contains(&option.name.as_str());
    let kept = before.iter().filter(|option| !is_reloaded(option));
    let in_force: Vec<InForce> = kept.chain(now.iter().filter(is_reloaded)).cloned().collect();
    let values = |options: &[InForce], name: &str| {
        options.iter().find(|option| option.name == name).map(|option| option.values.clone())
    };
    let names = before.iter().chain(now).filter(|option| !is_reloaded(option)).map(|option| &option.name);
    let waiting = names.filter(|name| values(before, name) != values(now, name)).map(|name| format!("--{name}"));
    let waiting: std::collections::BTreeSet<String> = waiting.collect();
    (in_force, waiting.into_iter().collect())
}

fn watch_by(messages: &Arc<Messages>, patience_s: u64) -> Arc<NodeWatch> {
    let messages = Arc::clone(messages);
    NodeWatch::new(Duration::from_secs(patience_s), move |text| messages.line(text))
}

fn server_options(options: &ServeOptions) -> ServerOptions {
    let mut listen = Vec::new();
    let mut listen_names = Vec::new();
    for place in &options.listen {
        match place {
            Listen::Address(address) => listen.push(*address),
            Listen::Name(name) => listen_names.push(name.clone()),
        }
    }
    ServerOptions {
        listen,
        listen_names,
        unix_socket: options.unix_socket.clone(),
        shared_ring_bytes_max: options.shared_ring,
        rdma: options.rdma.clone(),
        http: (!options.no_http).then_some(options.http),
        threads: options.threads.unwrap_or(0) as usize,
        max_connections: options.max_connections as usize,
        idle_timeout_seconds: options.idle_timeout_s,
        max_value_bytes: options.max_value,
        auth_file: options.auth_file.clone(),
        rights_file: options.rights_file.clone(),
        tls: options.tls_cert.clone().zip(options.tls_key.clone()).map(|(certificate, key)| TlsFiles {
            certificate,
            key,
            client_ca: options.tls_client_ca.clone(),
        }),
        allow_anonymous: options.allow_anonymous,
        admin_token_file: options.admin_token_file.clone(),
        disable_flush_all: options.disable_flush_all,
        ..ServerOptions::default()
    }
}

fn cannot_start(error: StartError, options: &ServeOptions) -> Failure {
    let what = "cannot start the server";
    match &error {
        StartError::Listen { address, source } if source.kind() == io::ErrorKind::AddrInUse => {
            let option = if *address == options.http.to_string() { "--http" } else { "--listen" };
            let taken: Option<SocketAddr> = address.parse().ok();
            let other = taken.map_or("another".to_owned(), |mut other| {
                other.set_port(other.port().checked_add(10).unwrap_or(0));
                other.to_string()
            });
            Failure::new(what, format!("another process serves {address} (`ss -ltnp` shows which)"))
                .cure(format!("stop that one, or say {option} {other}"))
        }
        error => Failure::new(what, error),
    }
}

/// The addresses of the server.
#[derive(Debug, Serialize)]
struct Listening {
    event: &'static str,
    /// None for a cache.
    directory: Option<String>,
    durability: &'static str,
    addresses: Vec<SocketAddr>,
    /// Clients over TCP must speak TLS.
    tls: bool,
    unix_socket: Option<PathBuf>,
    http: Option<SocketAddr>,
    process: u32,
}

impl Listening {
    fn banner(&self, store: &Shown<'_>) -> String {
        let survives = match self.durability {
            "synced" => "a write is answered when it survives power failure",
            "flash" => "the next start finds the items on flash; the oldest ones go when flash is full",
            "none" => "none: the items are gone when the server stops, and the oldest ones go when memory is full",
            _ => "a write is answered when it survives this process; --sync waits for the disk",
        };
        let mut text = format!("Situ {} is serving.\n\n", env!("CARGO_PKG_VERSION"));
        let mut row = |name: &str, value: &str| text.push_str(&format!("  {name:<10} {value}\n"));
        row("data", &store.place.to_string());
        row("durability", survives);
        for address in &self.addresses {
            row("memcached", &format!("{address}{}", if self.tls { ", over TLS" } else { "" }));
        }
        if let Some(path) = &self.unix_socket {
            row("memcached", &path.display().to_string());
        }
        if let Some(http) = self.http {
            row("metrics", &format!("http://{http}/metrics"));
            row("health", &format!("http://{http}/healthz"));
            row("live page", &format!("http://{http}/"));
        }
        text.push_str("\nTry, in another terminal:\n\n");
        if let Some(address) = self.addresses.first() {
            let client = match self.tls {
                true => format!("openssl s_client -quiet -connect {address}"),
                false => format!("nc {} {}", address.ip(), address.port()),
            };
            text.push_str(&format!(
                "  printf 'set greeting 0 0 5\\r\\nhello\\r\\nget greeting\\r\\nquit\\r\\n' | {client}\n"
            ));
        }
        if let Some(http) = self.http {
            text.push_str(&format!("  curl -s http://{http}/metrics | grep {}\n", store.metrics));
        }
        // The program need not be on the PATH, nor the other terminal in this directory.
        let program = std::env::current_exe().map_or("situ".to_owned(), |path| path.display().to_string());
        if let Some(directory) = &self.directory {
            text.push_str(&format!("  {} inspect {}\n", shell(&program), shell(directory)));
        }
        text.push_str("\nCtrl-C stops it.\n");
        text
    }
}

/// `text` as a shell takes it for one word.
fn shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%=".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}
