use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::*;

type Value = Vec<u8>;

fn part(batch: u64, text: &str) -> Await<Value> {
    Await {
        batch,
        reply: Reply::Value(format!("{text}:").into_bytes(), vec![b'.'; 20], 17),
        write_bytes: 10,
        on_failure: OnFailure::EndAnswer,
        command: None,
        started: Instant::now(),
        traced: None,
    }
}

/// Everything that is sent, which must be everything there is.
fn sent(output: &mut Output<Value>) -> String {
    let (near, mut far) = UnixStream::pair().unwrap();
    let send = |slices: &[IoSlice<'_>]| Ok((&near).write_vectored(slices).unwrap());
    assert_eq!(output.send(send, &mut 0).unwrap(), Progress::Empty);
    assert_eq!((output.pending_bytes(), output.awaiting(), output.writing_bytes()), (0, 0, 0));
    drop(near);
    let mut text = String::new();
    far.read_to_string(&mut text).unwrap();
    text
}

/// Two answers of three parts each, with answers of other kinds around, and each order and outcome of the writes.
#[test]
fn an_error_ends_its_answer_and_no_other_one() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let counters = Counters::default();
    for (order, failing) in orders.into_iter().flat_map(|order| (0..8).map(move |failing| (order, failing))) {
        let mut output = Output::new();
        let mut expected = "before\r\n".to_owned();
        output.append(|out| out.extend_from_slice(b"before\r\n"));
        for answer in 0..2 {
            let mut ended = false;
            for batch in 0..3 {
                output.append_await(part(batch, &format!("{answer}{batch}")));
                output.append(|out| out.extend_from_slice(b"plain\r\n"));
                if !ended {
                    ended = failing & (1 << batch) != 0;
                    expected += &match ended {
                        true => format!("SERVER_ERROR {batch} failed\r\n"),
                        false => format!("{answer}{batch}:...\r\nplain\r\n"),
                    };
                }
            }
            output.append_end(b"END\r\n".to_vec());
            output.append(|out| out.extend_from_slice(b"after\r\n"));
            expected += if ended { "after\r\n" } else { "END\r\nafter\r\n" };
        }
        for batch in order {
            let result = match failing & (1 << batch) {
                0 => Ok(()),
                _ => Err(EngineError::new(format!("{batch} failed"))),
            };
            output.resolve(batch, &result, (&counters, &Tracer::default()), Instant::now());
        }
        assert!(!output.take_cut_short());
        assert_eq!(sent(&mut output), expected, "order {order:?}, failing {failing:03b}");
    }
}

#[test]
fn an_answer_that_is_still_given_is_told_of_its_end() {
    let counters = Counters::default();
    let mut output = Output::new();
    for batch in 0..3 {
        output.append_await(part(batch, "part"));
    }
    output.resolve(1, &Err(EngineError::new("late")), (&counters, &Tracer::default()), Instant::now());
    assert!(output.take_cut_short());
    output.append(|out| out.extend_from_slice(b"after\r\n"));
    output.resolve(0, &Err(EngineError::new("early")), (&counters, &Tracer::default()), Instant::now());
    assert!(!output.take_cut_short(), "the answer had an end");
    output.resolve(2, &Ok(()), (&counters, &Tracer::default()), Instant::now());
    assert_eq!(sent(&mut output), "SERVER_ERROR early\r\nafter\r\n");
}
