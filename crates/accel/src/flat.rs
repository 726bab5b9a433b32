//! Flat structs: fields of fixed width in little-endian, one behind the other, as C lays them out.
//!
//! [`flat!`] makes a Rust struct, its encoder, its decoder and its text in C from one list of fields. So the kernels,
//! which are C, and the host cannot disagree about an offset. **Invariants**: fields are ordered so that C puts no
//! padding between them; a test sums the widths and compares the offsets that the page `docs/formats/accelerator.md`
//! names.

/// A value of fixed width.
pub(crate) trait Flat: Sized {
    /// Its width.
    const BYTES: usize;
    /// Its type in C.
    const C: &'static str;
    /// The text behind the field's name in C.
    const C_SUFFIX: &'static str;

    fn put(&self, out: &mut Vec<u8>);

    /// Takes the value from the front of `bytes`; `None` if they are too few.
    fn take(bytes: &mut &[u8]) -> Option<Self>;
}

macro_rules! number {
    ($type:ty, $c:literal) => {
        impl Flat for $type {
            const BYTES: usize = size_of::<$type>();
            const C: &'static str = $c;
            const C_SUFFIX: &'static str = "";

            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(bytes: &mut &[u8]) -> Option<$type> {
                let (head, rest) = bytes.split_first_chunk()?;
                *bytes = rest;
                Some(<$type>::from_le_bytes(*head))
            }
        }
    };
}

number!(u8, "u8");
number!(u16, "u16");
number!(u32, "u32");
number!(u64, "u64");

macro_rules! array {
    ($length:literal, $suffix:literal) => {
        impl<T: Flat + Copy + Default> Flat for [T; $length] {
            const BYTES: usize = $length * T::BYTES;
            const C: &'static str = T::C;
            const C_SUFFIX: &'static str = $suffix;

            fn put(&self, out: &mut Vec<u8>) {
                self.iter().for_each(|item| item.put(out));
            }

            fn take(bytes: &mut &[u8]) -> Option<[T; $length]> {
                let mut items = [T::default(); $length];
                for item in &mut items {
                    *item = T::take(bytes)?;
                }
                Some(items)
            }
        }
    };
}

array!(8, "[8]");
array!(16, "[16]");

/// Defines a flat struct.
macro_rules! flat {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[allow(missing_docs, reason = "what only kernels and their layout know is named as the kernels name it")]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $name {
            /// Bytes of the struct.
            pub const BYTES: usize = 0 $(+ <$type as $crate::flat::Flat>::BYTES)*;

            /// Appends the struct's bytes.
            pub fn put(&self, out: &mut Vec<u8>) {
                $($crate::flat::Flat::put(&self.$field, out);)*
            }

            /// Takes the struct from the front of `bytes`; `None` if they are too few.
            pub fn take(bytes: &mut &[u8]) -> Option<$name> {
                Some($name { $($field: $crate::flat::Flat::take(bytes)?,)* })
            }

            /// Returns the struct's text in C, over the types of `kernels/words.cu` and `words.cl`.
            pub(crate) fn c_text() -> String {
                let mut text = format!("typedef struct {} {{\n", stringify!($name));
                $(text.push_str(&format!(
                    "    {} {}{};\n",
                    <$type as $crate::flat::Flat>::C,
                    stringify!($field),
                    <$type as $crate::flat::Flat>::C_SUFFIX
                ));)*
                text.push_str(&format!("}} {};\n", stringify!($name)));
                text
            }

            /// Returns the fields' names, offsets and widths.
            pub fn fields() -> Vec<(&'static str, usize, usize)> {
                let mut at = 0;
                let mut fields = Vec::new();
                $(
                    fields.push((stringify!($field), at, <$type as $crate::flat::Flat>::BYTES));
                    at += <$type as $crate::flat::Flat>::BYTES;
                )*
                debug_assert_eq!(at, $name::BYTES);
                fields
            }
        }
    };
}

pub(crate) use flat;
