//! Flags of meta commands that came after memcached 1.6.18. The answers are those of memcached 1.6.42; where a memcached of
//! at least that version is installed, they are compared with it.

use crate::memory;
use crate::skipped;
use std::time::Duration;

use crate::memcached::{Memcached, exchange};
use situ_server::{Server, ServerOptions};

/// Commands and their answers, each on items of its own.
const DIALOGUES: &[(&str, &str)] = &[
    // E: every mode of ms, and what compares with it.
    ("ms a 2 E500 c\r\nhi\r\nmg a c v\r\n", "HD c500\r\nVA 2 c500\r\nhi\r\n"),
    ("ms b 1 ME E5 c\r\nx\r\nms b 1 ME E6 c\r\ny\r\nmg b c v\r\n", "HD c5\r\nNS c0\r\nVA 1 c5\r\nx\r\n"),
    (
        "ms c 1 E5\r\nx\r\nms c 1 MA E6 c\r\ny\r\nms c 1 MP E3 c\r\nz\r\nmg c v c\r\n",
        "HD\r\nHD c6\r\nHD c3\r\nVA 3 c3\r\nzxy\r\n",
    ),
    (
        "ms d 1 E5\r\nx\r\nms d 1 MR E9 c\r\ny\r\nms d 1 C5 E10 c\r\nz\r\nms d 1 C9 E10 c\r\nz\r\n",
        "HD\r\nHD c9\r\nEX c0\r\nHD c10\r\n",
    ),
    ("ms e 1 E7\r\nx\r\ncas e 0 0 1 6\r\ny\r\ncas e 0 0 1 7\r\ny\r\n", "HD\r\nEXISTS\r\nSTORED\r\n"),
    (
        "ms f 1 E18446744073709551615 c\r\nx\r\ngets f\r\n",
        "HD c18446744073709551615\r\nVALUE f 0 1 18446744073709551615\r\nx\r\nEND\r\n",
    ),
    // Late, and kept as stale: the ids that clients gave are compared.
    ("ms g 1 E50\r\nx\r\nms g 1 I C40 E45 c\r\ny\r\nmg g v c\r\n", "HD\r\nHD c45\r\nVA 1 c45 X W\r\ny\r\n"),
    ("ms h 1 E50\r\nx\r\nms h 1 I C60 E70 c\r\ny\r\n", "HD\r\nEX c0\r\n"),
    // A touch keeps it.
    (
        "ms i 1 E50\r\nx\r\ntouch i 100\r\nmg i T50 c\r\ngats 100 i\r\n",
        "HD\r\nTOUCHED\r\nHD c50\r\nVALUE i 0 1 50\r\nx\r\nEND\r\n",
    ),
    (
        "ms j 1 Ex\r\nx\r\nms j 1 E\r\nx\r\nms j 1 E-1\r\nx\r\n",
        "CLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\n",
    ),
    // E: mg gives it to what it creates, and to nothing else.
    ("mg k N0 E77 c v\r\nmg k c E78\r\nmg k c T0 E78\r\n", "VA 0 c77 W\r\n\r\nHD c77 Z\r\nHD c77 Z\r\n"),
    // E: md with I.
    (
        "ms l 1 E5\r\nx\r\nmd l I E9\r\nmg l c v\r\nmd l C5\r\nmd l C9\r\nmg l v\r\n",
        "HD\r\nHD\r\nVA 1 c9 X W\r\nx\r\nEX\r\nHD\r\nEN\r\n",
    ),
    // E: ma, changing and creating.
    (
        "ma m N0 J7 E20 v c\r\nma m E21 v c\r\nma m C20\r\nma m C21 E0 v c\r\n",
        "VA 1 c20\r\n7\r\nVA 1 c21\r\n8\r\nEX\r\nVA 1 c0\r\n9\r\n",
    ),
    // x: empty, with the flags and the time of the command, and with its cas id.
    ("ms n 2 E5 F3 T100\r\nhi\r\nmd n x\r\nmg n v f t c s\r\n", "HD\r\nHD\r\nVA 0 f0 t-1 c5 s0\r\n\r\n"),
    ("ms o 2 E5 F3\r\nhi\r\nmd o x F8 E6 O1 k\r\nmg o v f t c\r\n", "HD\r\nHD O1 ko\r\nVA 0 f8 t-1 c6\r\n\r\n"),
    (
        "ms p 2 E5 F3\r\nhi\r\nmd p x I E6\r\nmg p v f c\r\nmg p c\r\n",
        "HD\r\nHD\r\nVA 0 f0 c6 X W\r\n\r\nHD c6 Z X\r\n",
    ),
    ("ms q 2 E5\r\nhi\r\nmd q x C4\r\nmd q x C5 q\r\nmg q v\r\nmd none x\r\n", "HD\r\nEX\r\nVA 0\r\n\r\nNF\r\n"),
    ("ms r 2 T100\r\nhi\r\nmd r x T-1\r\nmg r v\r\n", "HD\r\nHD\r\nEN\r\n"),
    // What was stale and won is neither without its value.
    ("ms s 2\r\nhi\r\nmd s I\r\nmg s\r\nmd s x\r\nmg s v\r\n", "HD\r\nHD\r\nHD X W\r\nHD\r\nVA 0\r\n\r\n"),
    // C of mg: the value is left out if the client has it.
    (
        "ms t 2 E5\r\nhi\r\nmg t v C5 c s\r\nmg t v C6 c\r\nmg t T0 C5 v\r\nmg t C5\r\nmg none C5 v\r\n",
        "HD\r\nHD c5 s2\r\nVA 2 c5\r\nhi\r\nHD\r\nHD\r\nEN\r\n",
    ),
    ("mg u N0 E5 C5 v\r\n", "HD W\r\n"),
    // s of ms: the size of what is stored, or of the data that is refused.
    (
        "ms v 2 s\r\nhi\r\nms v 3 MA k s\r\nabc\r\nms v 1 ME s Oq\r\nx\r\nms v 0 MP s\r\n\r\n",
        "HD s2\r\nHD kv s5\r\nNS s1 Oq\r\nHD s5\r\n",
    ),
    // N of ms: append and prepend create what is missing, with that time; T is for other modes.
    (
        "ms w 2 MA N0 T-1 F9 E5 s c\r\nhi\r\nms w 1 MA N-1 F8 E6 s\r\n!\r\nmg w v f t c\r\n",
        "HD s2 c5\r\nHD s3\r\nVA 3 f9 t-1 c6\r\nhi!\r\n",
    ),
    ("ms x 2 MP N-1\r\nhi\r\nmg x v\r\nms x 2 MP N0 C5\r\nhi\r\nmg x v\r\n", "HD\r\nEN\r\nHD\r\nVA 2\r\nhi\r\n"),
    ("ms y 2 MR N0\r\nhi\r\nms y 2 MA\r\nhi\r\nms y 2 N-1\r\nhi\r\nmg y v\r\n", "NS\r\nNS\r\nHD\r\nVA 2\r\nhi\r\n"),
    ("ms z 1 MA Nx\r\nx\r\n", "CLIENT_ERROR bad token in command line format\r\n"),
];

fn converse(address: std::net::SocketAddr, who: &str) {
    for (commands, answer) in DIALOGUES {
        let got = exchange(address, &[commands.as_bytes()], false);
        assert_eq!(String::from_utf8_lossy(&got), *answer, "{who}, for {commands:?}");
    }
}

#[test]
fn later_flags_answer_as_the_memcached_that_brought_them() {
    let options = ServerOptions { listen: vec!["127.0.0.1:0".parse().unwrap()], ..ServerOptions::default() };
    for delay in [None, Some(Duration::from_micros(200))] {
        let server = Server::start(&options, memory::MemoryEngine::start(delay)).unwrap();
        converse(server.addresses()[0], "ours");
        server.stop(Duration::from_secs(5));
    }
}

#[test]
fn a_memcached_that_knows_the_later_flags_answers_the_same() {
    match Memcached::start().filter(|memcached| memcached.version >= [1, 6, 42]) {
        Some(memcached) => converse(memcached.address, "memcached"),
        None => skipped::skipped("no memcached from 1.6.42 on is installed"),
    }
}
