//! The parts that the event loops of a server share, and the executor of each loop made of them.

use crate::admin::access::AccessTable;
use crate::admin::dump::Dumps;
use crate::admin::metrics::Counters;
use crate::admin::notices::Notices;
use crate::admin::prefixes::Prefixes;
use crate::admin::stats::StatsSource;
use crate::admin::trace::Tracer;
use crate::admin::watch::Watchers;
use crate::commands::batcher::{BATCH_BYTES_MAX, Batcher};
use crate::commands::execute::{Executor, Limits, Moment};
use crate::commands::read_side::ReadSide;
use crate::commands::turn::{Quotas, Share};
use crate::engine::cache::{CacheExtras, EvictedItem};
use crate::engine::durable::Durable;
use crate::engine::{Engine, MAX_VALUE_BYTES_LIMIT};
use crate::event_loop::loops::Loops;
use crate::process::descriptors::{self, Places};
use crate::process::pressure::machine_memory_bytes;
use crate::protocol::interests;
use crate::protocol::policy::Policy;
use crate::server::listening::BACKLOG;
use crate::server::options::{ServerOptions, StartError, beyond_machine, open_to_all};
use crate::waiting::fetch::{Fetches, READS_MAX};
use crate::waiting::greeting::{Errand, Greeter};
use crate::waiting::inbox::Inbox;
use crate::waiting::room::Room;
use crate::waiting::stripe::Stripes;
use situ_transport::RdmaDevices;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

const _: () = assert!(MAX_VALUE_BYTES_LIMIT + BATCH_BYTES_MAX + (512 << 10) <= situ::BATCH_BYTES_MAX);

/// The size of a server: its event loops, and the connections that it serves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capacity {
    /// Event loops, each a thread.
    pub(crate) threads: usize,
    pub(crate) connections_max: usize,
    /// The process's limit of open files.
    pub(crate) open_files_max: u64,
}

impl Capacity {
    /// Raises the limit of open files, and divides it.
    ///
    /// # Errors
    /// The limit leaves no connection.
    pub(crate) fn of(options: &ServerOptions) -> Result<Capacity, StartError> {
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let open_files_max = descriptors::raise_limit();
        let capacity = Capacity { threads, connections_max: 0, open_files_max };
        Ok(Capacity { connections_max: capacity.connections_max(options)?, ..capacity })
    }

    /// Returns the number of connections that the limit of open files allows, at most that of the options.
    ///
    /// # Errors
    /// The limit leaves no connection.
    pub(crate) fn connections_max(&self, options: &ServerOptions) -> Result<usize, StartError> {
        let Capacity { threads, open_files_max, .. } = *self;
        descriptors::connections_max(open_files_max, options.max_connections, threads).map_err(StartError::Option)
    }
}

/// See the module.
pub(crate) struct Parts<E: Engine> {
    pub(crate) durable: Arc<Durable<E>>,
    pub(crate) loops: Arc<Loops>,
    pub(crate) stats: Arc<StatsSource>,
    pub(crate) notices: Arc<Notices>,
    tracer: Arc<Tracer>,
    pub(crate) dumps: Arc<Dumps>,
    /// The time at which the server started.
    pub(crate) started: Instant,
    engine: Arc<E>,
    /// The policy at the start.
    pub(crate) policy: Arc<Policy>,
    stripes: Arc<Stripes>,
    room: Arc<Room>,
    access: Arc<AccessTable>,
    limits: Limits,
    reads_max: usize,
    greeter: Greeter,
    /// The work of the thread for connections in remote memory; `None` if there are none.
    pub(crate) errands: Option<mpsc::Receiver<Errand>>,
}

impl<E: Engine> Parts<E> {
    /// Makes the parts, and sends evictions to watchers.
    ///
    /// # Errors
    /// The system has no descriptor for an inbox.
    pub(crate) fn new(
        options: &ServerOptions,
        capacity: &Capacity,
        addresses: &[SocketAddr],
        (engine, durable): (Arc<E>, Arc<Durable<E>>),
        policy: Policy,
    ) -> Result<Parts<E>, StartError> {
        let Capacity { threads, connections_max, open_files_max } = *capacity;
        let mut inboxes = Vec::new();
        for _ in 0..threads {
            inboxes.push(Arc::new(Inbox::new().map_err(StartError::System)?));
        }
        let clock = Arc::clone(engine.clock());
        let started_seconds = clock.seconds();
        let watchers = Arc::new(Watchers::default());
        tell_evictions(&*engine, &watchers);
        let places = Places::new(connections_max);
        let (greeter, errands) = Greeter::new(Arc::clone(&places), remote_ring_bytes_max(options));
        Ok(Parts {
            greeter,
            errands: (options.rdma != RdmaDevices::Off).then_some(errands),
            durable,
            stats: Arc::new(StatsSource {
                counters: (0..threads).map(|_| Arc::<Counters>::default()).collect(),
                started_seconds,
                places: Arc::clone(&places),
                settings: Mutex::new(settings(options, capacity, addresses)),
                baseline: Mutex::default(),
                prefixes: Prefixes::default(),
                watchers,
                verbosity: AtomicU32::new(0),
                reserved_descriptors: descriptors::reserve(open_files_max, threads),
            }),
            notices: Arc::default(),
            tracer: Arc::clone(&options.tracer),
            dumps: Arc::default(),
            started: Instant::now(),
            engine,
            policy: Arc::new(policy),
            stripes: Arc::new(Stripes::new(inboxes.clone())),
            room: Arc::default(),
            access: Arc::new(AccessTable::new(started_seconds)),
            limits: Limits {
                value_bytes_max: options.max_value_bytes,
                output_bytes_option: options.max_output_bytes,
                outstanding_answers_max: options.max_outstanding_writes,
                flush_allowed: !options.disable_flush_all,
                shared_ring_bytes_max: options.shared_ring_bytes_max,
                rdma: options.rdma.clone(),
            },
            reads_max: (READS_MAX / threads).max(1),
            loops: Arc::new(Loops { inboxes, clock, places, stop_at: Arc::default() }),
        })
    }

    /// Makes the executor of one event loop.
    pub(crate) fn executor(&self, loop_index: usize) -> Executor<E> {
        let inbox = Arc::clone(&self.loops.inboxes[loop_index]);
        let fetches = Fetches::new(Arc::clone(&inbox), self.reads_max);
        let reader = self.engine.cache().and_then(CacheExtras::loop_reader);
        Executor {
            engine: Arc::clone(&self.engine),
            durable: Arc::clone(&self.durable),
            stripes: Arc::clone(&self.stripes),
            access: Arc::clone(&self.access),
            counters: Arc::clone(&self.stats.counters[loop_index]),
            stats: Arc::clone(&self.stats),
            dumps: Arc::clone(&self.dumps),
            batcher: Batcher::new(Arc::clone(&self.stripes), Arc::clone(&inbox), Arc::clone(&self.room)),
            inbox,
            loop_index,
            limits: self.limits.clone(),
            policy: Arc::clone(&self.policy),
            notices: Arc::clone(&self.notices),
            tracer: Arc::clone(&self.tracer),
            moment: Moment {
                now: Instant::now(),
                rule: self.durable.rule(self.stats.started_seconds),
                unix_ahead: self.loops.clock.difference_seconds(),
            },
            quotas: Quotas::new(Share::of(0, 0, self.limits.output_bytes_option)),
            read_side: ReadSide { fetches, reader },
            greeter: self.greeter.clone(),
        }
    }
}

/// Returns the memory that all connections in remote memory may have.
fn remote_ring_bytes_max(options: &ServerOptions) -> u64 {
    /// The memory of a machine that does not say how much it has.
    const UNKNOWN_BYTES: u64 = 4 << 30;
    let machine = || machine_memory_bytes().unwrap_or(UNKNOWN_BYTES);
    options.rdma_bytes_max.unwrap_or_else(|| machine() / 8)
}

/// Sends events to watchers for items that the engine evicts.
fn tell_evictions<E: Engine>(engine: &E, watchers: &Arc<Watchers>) {
    let Some(cache) = engine.cache() else { return };
    let (watchers, clock) = (Arc::clone(watchers), Arc::clone(engine.clock()));
    cache.on_evicted(Box::new(move |item| {
        if watchers.want(interests::EVICTIONS) {
            let EvictedItem { key, expires, value_bytes, was_read } = item;
            let ttl = (expires != 0).then(|| expires.saturating_sub(clock.seconds()));
            watchers.evicted(key, was_read, ttl, value_bytes);
        }
    }));
}

/// Lists what is not as the options asked.
pub(crate) fn warnings(
    options: &ServerOptions,
    capacity: &Capacity,
    policy: &Policy,
    addresses: &[SocketAddr],
) -> Vec<String> {
    let Capacity { connections_max, open_files_max, .. } = *capacity;
    let mut warnings = Vec::new();
    if let Some(open) = open_to_all(policy, addresses) {
        warnings.push(format!("{open}: keep strangers out with a firewall"));
    }
    let open = beyond_machine(addresses);
    if policy.users.is_some() && policy.tls.is_none() && !open.is_empty() {
        warnings.push(format!(
            "passwords and items travel unencrypted to {open}: encrypt them (--tls-cert), or use a tunnel"
        ));
    }
    if connections_max < options.max_connections {
        warnings.push(format!(
            "at most {connections_max} connections instead of {}: the limit of open files is {open_files_max}; raise it \
             (`ulimit -n`, or LimitNOFILE of a systemd unit) or ask for fewer connections",
            options.max_connections
        ));
    }
    warnings
}

/// Lists the settings, as `stats settings` shows them.
pub(crate) fn settings(
    options: &ServerOptions,
    capacity: &Capacity,
    addresses: &[SocketAddr],
) -> Vec<(&'static str, String)> {
    let Capacity { threads, connections_max, .. } = *capacity;
    let first = addresses.first();
    vec![
        ("maxconns", connections_max.to_string()),
        ("tcpport", first.map_or(0, SocketAddr::port).to_string()),
        ("udpport", "0".to_owned()),
        ("inter", first.map_or_else(|| "NULL".to_owned(), |address| address.ip().to_string())),
        (
            "domain_socket",
            options.unix_socket.as_ref().map_or_else(|| "NULL".to_owned(), |path| path.display().to_string()),
        ),
        ("umask", format!("{:o}", options.unix_socket_mode)),
        ("num_threads", threads.to_string()),
        ("cas_enabled", "yes".to_owned()),
        ("binding_protocol", "ascii".to_owned()),
        ("tcp_backlog", BACKLOG.to_string()),
        ("stat_key_prefix", ":".to_owned()),
        ("auth_enabled_sasl", "no".to_owned()),
        ("auth_enabled_ascii", options.auth_file.as_ref().map_or("no".into(), |path| path.display().to_string())),
        ("dump_enabled", "yes".to_owned()),
        ("ssl_enabled", if options.tls.is_some() { "yes" } else { "no" }.to_owned()),
        ("item_size_max", options.max_value_bytes.to_string()),
        ("maxconns_fast", "yes".to_owned()),
        ("flush_enabled", if options.disable_flush_all { "no" } else { "yes" }.to_owned()),
        ("shutdown_command", "no".to_owned()),
        ("idle_timeout", options.idle_timeout_seconds.to_string()),
        ("output_bytes_max", options.max_output_bytes.to_string()),
        ("outstanding_writes_max", options.max_outstanding_writes.to_string()),
    ]
}
