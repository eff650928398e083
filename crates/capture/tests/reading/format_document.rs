//! The worked examples in the format's description are true.
