//! Enums whose numbers are part of a file format.

/// Declares such an enum from one list, with `ALL` and `from_number`. Never renumber a variant, only add new ones.
macro_rules! numbered {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$note:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$note])* $variant = $number,)*
        }

        impl $name {
            /// All variants, by number.
            pub const ALL: [$name; [$($number),*].len()] = [$($name::$variant),*];

            /// Returns the variant with this number.
            #[inline(always)]
            pub fn from_number(number: u8) -> Option<$name> {
                match number {
                    $($number => Some($name::$variant),)*
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use numbered;
