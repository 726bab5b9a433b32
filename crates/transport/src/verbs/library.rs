//! libibverbs as it is found at run time: its types and functions.
//!
//! The library is a part of the system, as the drivers of devices are. So nothing of it is needed to build Situ. Its
//! headers call some functions through a table in the context of a device. Therefore the layouts of a few structures
//! matter. They have not changed since version 1.1 of the library's interface. A test compares them with the headers
//! where those are installed.

use libloading::Library;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// The name under which every distribution has the library.
const NAME: &str = "libibverbs.so.1";

/// Declares a structure of the library, and for tests the places of its fields.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident as $c_name:literal { $($field:ident: $type:ty = $c_field:literal,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub(super) struct $name { $(pub(super) $field: $type,)* }
        )*

        /// The structures with their sizes and the offsets of their fields, by their names in C.
        #[cfg(test)]
        pub(super) fn layouts() -> Vec<(&'static str, usize, Vec<(&'static str, usize)>)> {
            vec![$((
                $c_name,
                size_of::<$name>(),
                vec![$(($c_field, std::mem::offset_of!($name, $field)),)*],
            ),)*]
        }
    };
}

/// A function that is not called, or an object that is not looked into.
type Opaque = *mut c_void;

structures! {
    /// The beginning of a context: a device that was opened. What follows is not used.
    Context as "ibv_context" {
        device: Opaque = "device",
        compatible: [Opaque; 11] = "ops",
        poll_cq: unsafe extern "C" fn(*mut Queue, c_int, *mut Completion) -> c_int = "ops.poll_cq",
        req_notify_cq: unsafe extern "C" fn(*mut Queue, c_int) -> c_int = "ops.req_notify_cq",
        between: [Opaque; 12] = "ops._compat_cq_event",
        post_send: unsafe extern "C" fn(*mut Pair, *mut SendRequest, *mut *mut SendRequest) -> c_int = "ops.post_send",
        post_recv: unsafe extern "C" fn(*mut Pair, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int = "ops.post_recv",
    }
    /// A channel for events of completion queues.
    Channel as "ibv_comp_channel" {
        context: *mut Context = "context",
        descriptor: c_int = "fd",
        references: c_int = "refcnt",
    }
    /// The beginning of a completion queue.
    Queue as "ibv_cq" {
        context: *mut Context = "context",
        channel: *mut Channel = "channel",
    }
    /// A registered piece of memory.
    Region as "ibv_mr" {
        context: *mut Context = "context",
        domain: Opaque = "pd",
        address: *mut c_void = "addr",
        length: usize = "length",
        handle: u32 = "handle",
        local_key: u32 = "lkey",
        remote_key: u32 = "rkey",
    }
    /// The beginning of a pair of queues for requests: one end of a connection.
    Pair as "ibv_qp" {
        context: *mut Context = "context",
        user_data: *mut c_void = "qp_context",
        domain: Opaque = "pd",
        send_queue: *mut Queue = "send_cq",
        receive_queue: *mut Queue = "recv_cq",
        shared_receives: Opaque = "srq",
        handle: u32 = "handle",
        number: u32 = "qp_num",
    }
    /// The limits of a pair.
    Limits as "ibv_qp_cap" {
        sends: u32 = "max_send_wr",
        receives: u32 = "max_recv_wr",
        send_pieces: u32 = "max_send_sge",
        receive_pieces: u32 = "max_recv_sge",
        inline_bytes: u32 = "max_inline_data",
    }
    /// The properties with which a pair is made.
    PairProperties as "ibv_qp_init_attr" {
        user_data: *mut c_void = "qp_context",
        send_queue: *mut Queue = "send_cq",
        receive_queue: *mut Queue = "recv_cq",
        shared_receives: Opaque = "srq",
        limits: Limits = "cap",
        kind: c_uint = "qp_type",
        signals_all: c_int = "sq_sig_all",
    }
    /// The way to another device.
    Way as "ibv_ah_attr" {
        gid: [u64; 2] = "grh.dgid",
        flow_label: u32 = "grh.flow_label",
        source_gid_index: u8 = "grh.sgid_index",
        hops_max: u8 = "grh.hop_limit",
        traffic_class: u8 = "grh.traffic_class",
        lid: u16 = "dlid",
        service_level: u8 = "sl",
        source_path: u8 = "src_path_bits",
        static_rate: u8 = "static_rate",
        is_global: u8 = "is_global",
        port: u8 = "port_num",
    }
    /// The properties of a pair that can be changed.
    PairChange as "ibv_qp_attr" {
        state: c_uint = "qp_state",
        current_state: c_uint = "cur_qp_state",
        mtu: c_uint = "path_mtu",
        migration: c_uint = "path_mig_state",
        datagram_key: u32 = "qkey",
        receive_psn: u32 = "rq_psn",
        send_psn: u32 = "sq_psn",
        peer_number: u32 = "dest_qp_num",
        access: c_uint = "qp_access_flags",
        limits: Limits = "cap",
        way: Way = "ah_attr",
        other_way: Way = "alt_ah_attr",
        partition_index: u16 = "pkey_index",
        other_partition_index: u16 = "alt_pkey_index",
        notifies_drained: u8 = "en_sqd_async_notify",
        is_draining: u8 = "sq_draining",
        reads_max: u8 = "max_rd_atomic",
        peer_reads_max: u8 = "max_dest_rd_atomic",
        no_receive_timer: u8 = "min_rnr_timer",
        port: u8 = "port_num",
        timeout: u8 = "timeout",
        retries: u8 = "retry_cnt",
        no_receive_retries: u8 = "rnr_retry",
        other_port: u8 = "alt_port_num",
        other_timeout: u8 = "alt_timeout",
        rate_limit: u32 = "rate_limit",
    }
    /// A piece of local memory.
    Piece as "ibv_sge" {
        address: u64 = "addr",
        length: u32 = "length",
        local_key: u32 = "lkey",
    }
    /// A request to send. The fields of unreliable and extended services are `rest`.
    SendRequest as "ibv_send_wr" {
        id: u64 = "wr_id",
        next: *mut SendRequest = "next",
        pieces: *mut Piece = "sg_list",
        piece_count: c_int = "num_sge",
        operation: c_uint = "opcode",
        flags: c_uint = "send_flags",
        immediate: u32 = "imm_data",
        remote_address: u64 = "wr.rdma.remote_addr",
        remote_key: u32 = "wr.rdma.rkey",
        rest: [u64; 9] = "wr.atomic.swap",
    }
    /// A request to receive.
    ReceiveRequest as "ibv_recv_wr" {
        id: u64 = "wr_id",
        next: *mut ReceiveRequest = "next",
        pieces: *mut Piece = "sg_list",
        piece_count: c_int = "num_sge",
    }
    /// A completion of a request.
    Completion as "ibv_wc" {
        id: u64 = "wr_id",
        status: c_uint = "status",
        operation: c_uint = "opcode",
        vendor_error: u32 = "vendor_err",
        bytes: u32 = "byte_len",
        immediate: u32 = "imm_data",
        number: u32 = "qp_num",
        source: u32 = "src_qp",
        flags: c_uint = "wc_flags",
        partition_index: u16 = "pkey_index",
        lid: u16 = "slid",
        service_level: u8 = "sl",
        path: u8 = "dlid_path_bits",
    }
    /// The beginning of a port's properties. The function of the library writes no more than 64 bytes.
    PortProperties as "ibv_port_attr" {
        state: c_uint = "state",
        mtu_max: c_uint = "max_mtu",
        mtu: c_uint = "active_mtu",
        rest: [u32; 13] = "gid_tbl_len",
    }
}

/// Declares the functions that are looked up by name.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) -> $result:ty,)*) => {
        /// The functions of the library.
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            fn load() -> Result<Functions, String> {
                // SAFETY: the library of the system initializes nothing but itself when it is loaded.
                let library = unsafe { Library::new(NAME) }.map_err(|error| format!("{NAME} cannot be loaded: {error}"))?;
                // The library stays: drivers that it has loaded may have threads and handlers.
                let library: &'static Library = Box::leak(Box::new(library));
                Ok(Functions {
                    $($name: {
                        // SAFETY: the type is that of the library's header.
                        let symbol = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) };
                        *symbol.map_err(|_| format!("{NAME} has no function {}", stringify!($name)))?
                    },)*
                })
            }
        }
    };
}

functions! {
    ibv_get_device_list: fn(*mut c_int) -> *mut Opaque,
    ibv_free_device_list: fn(*mut Opaque) -> (),
    ibv_get_device_name: fn(Opaque) -> *const c_char,
    ibv_open_device: fn(Opaque) -> *mut Context,
    ibv_close_device: fn(*mut Context) -> c_int,
    ibv_query_port: fn(*mut Context, u8, *mut PortProperties) -> c_int,
    ibv_alloc_pd: fn(*mut Context) -> *mut c_void,
    ibv_dealloc_pd: fn(*mut c_void) -> c_int,
    ibv_reg_mr: fn(*mut c_void, *mut c_void, usize, c_int) -> *mut Region,
    ibv_dereg_mr: fn(*mut Region) -> c_int,
    ibv_create_comp_channel: fn(*mut Context) -> *mut Channel,
    ibv_destroy_comp_channel: fn(*mut Channel) -> c_int,
    ibv_create_cq: fn(*mut Context, c_int, *mut c_void, *mut Channel, c_int) -> *mut Queue,
    ibv_destroy_cq: fn(*mut Queue) -> c_int,
    ibv_get_cq_event: fn(*mut Channel, *mut *mut Queue, *mut *mut c_void) -> c_int,
    ibv_ack_cq_events: fn(*mut Queue, c_uint) -> (),
    ibv_create_qp: fn(*mut c_void, *mut PairProperties) -> *mut Pair,
    ibv_modify_qp: fn(*mut Pair, *mut PairChange, c_int) -> c_int,
    ibv_destroy_qp: fn(*mut Pair) -> c_int,
}

/// Returns the functions of the library, which is loaded once.
///
/// # Errors
/// The reason why there is none.
pub(super) fn functions() -> Result<&'static Functions, &'static str> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    FUNCTIONS.get_or_init(Functions::load).as_ref().map_err(String::as_str)
}

/// The kind of a pair that is a reliable connection.
pub(super) const RELIABLE: c_uint = 2;

/// States of a pair.
pub(super) mod state {
    pub(crate) const INIT: u32 = 1;
    pub(crate) const READY_TO_RECEIVE: u32 = 2;
    pub(crate) const READY_TO_SEND: u32 = 3;
}

/// Which properties a change has.
pub(super) mod change {
    pub(crate) const STATE: i32 = 1 << 0;
    pub(crate) const ACCESS: i32 = 1 << 3;
    pub(crate) const PARTITION: i32 = 1 << 4;
    pub(crate) const PORT: i32 = 1 << 5;
    pub(crate) const WAY: i32 = 1 << 7;
    pub(crate) const MTU: i32 = 1 << 8;
    pub(crate) const TIMEOUT: i32 = 1 << 9;
    pub(crate) const RETRIES: i32 = 1 << 10;
    pub(crate) const NO_RECEIVE_RETRIES: i32 = 1 << 11;
    pub(crate) const RECEIVE_PSN: i32 = 1 << 12;
    pub(crate) const READS: i32 = 1 << 13;
    pub(crate) const NO_RECEIVE_TIMER: i32 = 1 << 15;
    pub(crate) const SEND_PSN: i32 = 1 << 16;
    pub(crate) const PEER_READS: i32 = 1 << 17;
    pub(crate) const PEER: i32 = 1 << 20;
}

/// Rights to memory.
pub(super) mod access {
    pub(crate) const LOCAL_WRITE: i32 = 1;
    pub(crate) const REMOTE_WRITE: i32 = 1 << 1;
}

/// Operations of requests to send.
pub(super) mod operation {
    pub(crate) const WRITE_WITH_IMMEDIATE: u32 = 1;
    pub(crate) const SEND_WITH_IMMEDIATE: u32 = 3;
}

/// Operations of completions.
pub(super) mod completed {
    pub(crate) const SEND: u32 = 0;
    pub(crate) const WRITE: u32 = 1;
    pub(crate) const RECEIVE: u32 = 1 << 7;
    pub(crate) const RECEIVE_WRITE: u32 = (1 << 7) + 1;
}

/// Statuses of completions, in their order.
pub(super) const STATUSES: [&str; 22] = [
    "success",
    "local length error",
    "local queue pair operation error",
    "local end-to-end context error",
    "local protection error",
    "flushed",
    "memory window bind error",
    "bad response",
    "local access error",
    "remote invalid request",
    "remote access error",
    "remote operation error",
    "no answer of the other side",
    "the other side takes no more messages",
    "local domain violation",
    "remote invalid read request",
    "remote abort",
    "invalid end-to-end context number",
    "invalid end-to-end context state",
    "fatal error",
    "response timeout",
    "general error",
];
