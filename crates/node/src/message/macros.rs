//! Structs that are messages, and the table of operations. The page's tables are checked against what these macros
//! know.

/// Structs whose fields, in their order, are their bytes.
macro_rules! messages {
    ($($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl Message for $name {
            const NAME: &'static str = stringify!($name);

            fn fields() -> Vec<(&'static str, String)> {
                vec![$((stringify!($field), <$type as Field>::kind())),*]
            }

            fn put(&self, out: &mut Vec<u8>) {
                let _ = &out;
                $(self.$field.put(out);)*
            }

            fn take(fields: &mut Fields<'_>) -> Result<$name> {
                let _ = &fields;
                Ok($name { $($field: <$type as Field>::take(fields, stringify!($field))?,)* })
            }

            #[cfg(test)]
            fn sample() -> $name {
                let mut _number = 0;
                $name { $($field: <$type as Field>::sample(&mut _number),)* }
            }
        }
    )*};
}

/// The operations: request, number, class, answer.
macro_rules! operations {
    ($($request:ident = $number:literal, $class:ident => $answer:ident;)*) => {
        /// The request that a frame makes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Operation {
            $(
                #[doc = concat!("[`", stringify!($request), "`], answered by [`", stringify!($answer), "`].")]
                $request = $number,
            )*
        }

        impl Operation {
            /// All operations.
            pub const ALL: &[Operation] = &[$(Operation::$request),*];

            /// Returns the operation of a number.
            pub fn of(number: u16) -> Option<Operation> {
                match number {
                    $($number => Some(Operation::$request),)*
                    _ => None,
                }
            }

            /// Returns its name: that of the request.
            pub fn name(self) -> &'static str {
                match self { $(Operation::$request => stringify!($request),)* }
            }

            /// Returns its class.
            pub fn class(self) -> Class {
                match self { $(Operation::$request => Class::$class,)* }
            }

            /// Name of the answer, and the fields of the request and of the answer.
            #[cfg(test)]
            pub(crate) fn described(self) -> Described {
                match self {
                    $(Operation::$request => Described {
                        answer: stringify!($answer),
                        request_sample: <$request as Message>::sample().encode(),
                        answer_sample: <$answer as Message>::sample().encode(),
                        request_fields: <$request as Message>::fields(),
                        answer_fields: <$answer as Message>::fields(),
                    },)*
                }
            }

            /// Decodes a payload as the request and as the answer, and encodes again what it was. For fuzzers and
            /// tests.
            #[cfg(any(test, feature = "fuzzing"))]
            pub(crate) fn decode_both(self, payload: &[u8]) {
                match self {
                    $(Operation::$request => {
                        crate::message::decode_and_encode::<$request>(payload);
                        crate::message::decode_and_encode::<$answer>(payload);
                    })*
                }
            }
        }

        $(
            impl Call for $request {
                const OPERATION: Operation = Operation::$request;
                type Answer = $answer;
            }
        )*
    };
}
