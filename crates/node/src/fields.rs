//! The conversion of the fields of messages to bytes, and back.
//!
//! Integers are little-endian. Bytes, texts and lists have their length (u32) before them. **Failure.** Bytes that
//! break a rule are an error that names the message and the field; nothing is allocated for a length that the bytes do
//! not have.

use situ_storage::{Error, FileName, Result};
use std::time::Duration;

/// The fields of a message that are not read yet.
#[derive(Debug)]
pub struct Fields<'a> {
    what: &'static str,
    whole: usize,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Returns all fields of a message called `what`.
    pub fn of(what: &'static str, bytes: &'a [u8]) -> Fields<'a> {
        Fields { what, whole: bytes.len(), rest: bytes }
    }

    /// Checks that no byte is left.
    ///
    /// # Errors
    /// There are more.
    pub fn end(&self) -> Result<()> {
        match self.rest.len() {
            0 => Ok(()),
            more => Err(self.broken("the end", format!("{more} bytes more"))),
        }
    }

    pub(crate) fn broken(&self, expected: impl std::fmt::Display, found: impl std::fmt::Display) -> Error {
        let at = (self.whole - self.rest.len()) as u64;
        Error::corruption("a node's message", at, format!("fields of {}", self.what), expected, found)
    }

    fn take(&mut self, bytes: usize, name: &str) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(bytes) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(self.broken(format!("{name} of {bytes} bytes"), format!("{} bytes", self.rest.len()))),
        }
    }

    fn array<const N: usize>(&mut self, name: &str) -> Result<[u8; N]> {
        let taken = self.take(N, name)?;
        taken.try_into().map_err(|_| self.broken(name, "too few bytes"))
    }

    fn no_memory(&self, bytes: usize, name: &str) -> Error {
        Error::out_of_memory(bytes, format_args!("{name} of {}", self.what))
    }

    fn copy(&self, bytes: &[u8], name: &str) -> Result<Vec<u8>> {
        situ_storage::memory::copied(bytes, format_args!("{name} of {}", self.what))
    }

    fn sized(&mut self, name: &str) -> Result<&'a [u8]> {
        let bytes = u32::take(self, name)?;
        self.take(bytes as usize, name)
    }
}

/// A value that is a field of messages.
pub trait Field: Sized {
    /// The fewest bytes that one takes.
    const BYTES_MIN: usize;

    /// Returns the type's name on the page.
    fn kind() -> String;

    /// Appends its bytes.
    fn put(&self, out: &mut Vec<u8>);

    /// Takes it off the front.
    ///
    /// # Errors
    /// The bytes are no such field.
    fn take(fields: &mut Fields<'_>, name: &str) -> Result<Self>;

    /// Returns a value for golden bytes: another one for each number.
    #[cfg(test)]
    fn sample(number: &mut u8) -> Self;
}

/// The next number of a sample.
#[cfg(test)]
pub(crate) fn next(number: &mut u8) -> u8 {
    *number += 1;
    *number
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Field for $type {
            const BYTES_MIN: usize = size_of::<$type>();

            fn kind() -> String {
                stringify!($type).to_owned()
            }

            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(fields: &mut Fields<'_>, name: &str) -> Result<$type> {
                Ok(<$type>::from_le_bytes(fields.array(name)?))
            }

            #[cfg(test)]
            fn sample(number: &mut u8) -> $type {
                <$type>::from(next(number))
            }
        }
    )*};
}

integers!(u8, u16, u32, u64);

/// As the bits of IEEE 754.
impl Field for f64 {
    const BYTES_MIN: usize = 8;

    fn kind() -> String {
        "f64".to_owned()
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.to_bits().put(out);
    }

    fn take(fields: &mut Fields<'_>, name: &str) -> Result<f64> {
        Ok(f64::from_bits(u64::take(fields, name)?))
    }

    #[cfg(test)]
    fn sample(number: &mut u8) -> f64 {
        f64::from(next(number)) / 2.0
    }
}

impl Field for bool {
    const BYTES_MIN: usize = 1;

    fn kind() -> String {
        "bool".to_owned()
    }

    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }

    fn take(fields: &mut Fields<'_>, name: &str) -> Result<bool> {
        match u8::take(fields, name)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(fields.broken(format!("{name} to be 0 or 1"), other)),
        }
    }

    #[cfg(test)]
    fn sample(_: &mut u8) -> bool {
        true
    }
}

/// In nanoseconds.
impl Field for Duration {
    const BYTES_MIN: usize = 8;

    fn kind() -> String {
        "ns".to_owned()
    }

    fn put(&self, out: &mut Vec<u8>) {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX).put(out);
    }

    fn take(fields: &mut Fields<'_>, name: &str) -> Result<Duration> {
        u64::take(fields, name).map(Duration::from_nanos)
    }

    #[cfg(test)]
    fn sample(number: &mut u8) -> Duration {
        Duration::from_nanos(u64::sample(number))
    }
}

impl<const N: usize> Field for [u8; N] {
    const BYTES_MIN: usize = N;

    fn kind() -> String {
        format!("{N} bytes")
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn take(fields: &mut Fields<'_>, name: &str) -> Result<[u8; N]> {
        fields.array(name)
    }

    #[cfg(test)]
    fn sample(number: &mut u8) -> [u8; N] {
        [next(number); N]
    }
}

/// Bytes of any length.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bytes(pub Vec<u8>);

impl Field for Bytes {
    const BYTES_MIN: usize = 4;

    fn kind() -> String {
        "bytes".to_owned()
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_sized(&self.0, out);
    }

    fn take(fields: &mut Fields<'_>, name: &str) -> Result<Bytes> {
        let bytes = fields.sized(name)?;
        fields.copy(bytes, name).map(Bytes)
    }

    #[cfg(test)]
    fn sample(number: &mut u8) -> Bytes {
        Bytes(vec![next(number); 3])
    }
}

/// All that is left of the payload, without a length before it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rest(pub Vec<u8>);

impl Field for Rest {
    const BYTES_MIN: usize = 0;

    fn kind() -> String {
        "rest".to_owned()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn take(fields: &mut Fields<'_>, name: &str) -> Result<Rest> {
        let bytes = fields.take(fields.rest.len(), name)?;
        fields.copy(bytes, name).map(Rest)
    }

    #[cfg(test)]
    fn sample(number: &mut u8) -> Rest {
        Rest(vec![next(number); 3])
    }
}

impl Field for String {
    const BYTES_MIN: usize = 4;

    fn kind() -> String {
        "text".to_owned()
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_sized(self.as_bytes(), out);
    }

    fn take(fields: &mut Fields<'_>, name: &str) -> Result<String> {
        let bytes = fields.sized(name)?;
        let text = std::str::from_utf8(bytes).map(str::to_owned);
        text.map_err(|_| fields.broken(format!("{name} in UTF-8"), bytes.escape_ascii()))
    }

    #[cfg(test)]
    fn sample(number: &mut u8) -> String {
        format!("text {}", next(number))
    }
}

/// As the text of its name.
impl Field for FileName {
    const BYTES_MIN: usize = 4;

    fn kind() -> String {
        "name".to_owned()
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.to_string().put(out);
    }

    fn take(fields: &mut Fields<'_>, name: &str) -> Result<FileName> {
        let text = String::take(fields, name)?;
        text.parse().map_err(|_| fields.broken(format!("{name} to be a store's file"), text.escape_debug()))
    }

    #[cfg(test)]
    fn sample(number: &mut u8) -> FileName {
        FileName::Table(u64::sample(number))
    }
}

impl<T: Field> Field for Option<T> {
    const BYTES_MIN: usize = 1;

    fn kind() -> String {
        format!("optional {}", T::kind())
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(fields: &mut Fields<'_>, name: &str) -> Result<Option<T>> {
        match bool::take(fields, name)? {
            true => T::take(fields, name).map(Some),
            false => Ok(None),
        }
    }

    #[cfg(test)]
    fn sample(number: &mut u8) -> Option<T> {
        Some(T::sample(number))
    }
}

impl<T: Field> Field for Vec<T> {
    const BYTES_MIN: usize = 4;

    fn kind() -> String {
        format!("list of {}", T::kind())
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_length(self.len(), out);
        self.iter().for_each(|item| item.put(out));
    }

    fn take(fields: &mut Fields<'_>, name: &str) -> Result<Vec<T>> {
        let count = u32::take(fields, name)? as usize;
        // Items that take no byte would make a list of any length out of nothing.
        let most = fields.rest.len() / T::BYTES_MIN.max(1);
        if count > most {
            return Err(fields.broken(format!("{name} of {count} items"), format!("room for {most}")));
        }
        let mut items = Vec::new();
        for _ in 0..count {
            // In memory an item may be many times as long as in the message.
            items.try_reserve(1).map_err(|_| fields.no_memory(2 * size_of_val(&items[..]), name))?;
            items.push(T::take(fields, name)?);
        }
        Ok(items)
    }

    #[cfg(test)]
    fn sample(number: &mut u8) -> Vec<T> {
        vec![T::sample(number), T::sample(number)]
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    const BYTES_MIN: usize = A::BYTES_MIN + B::BYTES_MIN;

    fn kind() -> String {
        format!("({}, {})", A::kind(), B::kind())
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(fields: &mut Fields<'_>, name: &str) -> Result<(A, B)> {
        Ok((A::take(fields, name)?, B::take(fields, name)?))
    }

    #[cfg(test)]
    fn sample(number: &mut u8) -> (A, B) {
        (A::sample(number), B::sample(number))
    }
}

fn put_length(length: usize, out: &mut Vec<u8>) {
    // A payload of that length is refused when it is sent.
    u32::try_from(length).unwrap_or(u32::MAX).put(out);
}

fn put_sized(bytes: &[u8], out: &mut Vec<u8>) {
    put_length(bytes.len(), out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_sim::SimMemory;

    fn take<T: Field>(bytes: &[u8]) -> Result<T> {
        T::take(&mut Fields::of("a test", bytes), "a field")
    }

    fn assert_refused<T: Field>(bytes: &[u8]) {
        let (taken, largest) = SimMemory::largest(|| take::<T>(bytes).map(drop));
        let error = taken.unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("a field"), "{error}");
        assert!(largest < 1000, "{largest} bytes: {error}");
    }

    #[test]
    fn the_largest_lengths_are_refused_and_take_no_memory() {
        let bytes = [[0xff; 4], [0; 4]].concat();
        assert_refused::<Bytes>(&bytes);
        assert_refused::<String>(&bytes);
        assert_refused::<FileName>(&bytes);
        assert_refused::<Vec<bool>>(&bytes);
        assert_refused::<Vec<[u8; 0]>>(&bytes);
        assert_refused::<Vec<(u64, Bytes)>>(&bytes);
        assert_refused::<Vec<Vec<Option<Bytes>>>>(&[[1, 0, 0, 0], [0xff; 4], [0; 4]].concat());
    }

    /// The copy of a field once ended the process if there was no memory for it.
    #[test]
    fn a_field_without_memory_for_it_is_an_error() {
        const LONG: usize = 1 << 20;
        let long = [&(LONG as u32).to_le_bytes()[..], &[0; LONG]].concat();
        for refused in SimMemory::refusing(LONG, || {
            [take::<Bytes>(&long).map(drop), take::<Rest>(&long).map(drop), take::<Vec<Option<Bytes>>>(&long).map(drop)]
        }) {
            let error = refused.unwrap_err();
            assert!(error.is_out_of_memory() && error.to_string().contains("a field of a test"), "{error}");
        }
        assert_eq!(take::<Vec<Option<Bytes>>>(&long).unwrap().len(), LONG);
    }
}
