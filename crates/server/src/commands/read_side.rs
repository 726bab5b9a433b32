//! The reads of one loop: what the engine answers at once, what its threads read, and what the loop reads itself.

use crate::engine::cache::LoopReader;
use crate::engine::{Engine, Get};
use crate::waiting::fetch::{Fetched, Fetches};

/// See the module.
pub(crate) struct ReadSide<V> {
    /// Reads that are under way.
    pub(crate) fetches: Fetches<V>,
    /// The loop's own reader, if the engine lets loops read. It reads what the engine has no answer for.
    pub(crate) reader: Option<Box<dyn LoopReader<V>>>,
}

/// The answer to a question for a key.
pub(crate) enum Asked<V> {
    /// The engine has answered at once.
    Fetched(Fetched<V>),
    /// The read of this number has begun.
    Reading(u64),
    /// Too many reads are under way, and none has begun.
    Full,
}

impl<V: Send + 'static> ReadSide<V> {
    /// Continues the reads of the loop's own reader. Returns true if there is more to do at once.
    pub(crate) fn advance(&mut self) -> bool {
        self.reader.as_mut().is_some_and(|reader| reader.advance())
    }

    /// Returns true while the loop's own reader has reads under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.is_busy())
    }

    /// Asks the engine for `key`, and begins a read for `connection` if the engine has no answer.
    pub(crate) fn ask<E: Engine<Value = V>>(&mut self, engine: &E, connection: u64, key: &[u8]) -> Asked<V> {
        let fetches = &mut self.fetches;
        let mut begun = None;
        let reads_here = self.reader.is_some();
        let got = engine.get(key, &mut || {
            if reads_here {
                return None;
            }
            let (number, on_read) = fetches.begin(connection)?;
            begun = Some(number);
            Some(on_read)
        });
        if let (Some(reader), Ok(Get::Later)) = (&mut self.reader, &got)
            && let Some((number, on_read)) = fetches.begin(connection)
        {
            begun = Some(number);
            reader.begin(key, on_read);
        }
        match (got, begun) {
            (Ok(Get::Hit(value)), _) => Asked::Fetched(Ok(Some(value))),
            (Ok(Get::Miss), _) => Asked::Fetched(Ok(None)),
            (Err(error), _) => Asked::Fetched(Err(error)),
            (Ok(Get::Later), Some(number)) => Asked::Reading(number),
            (Ok(Get::Later), None) => Asked::Full,
        }
    }
}
