//! The command line itself: where Heaptide's arguments end, the declared commands, their help, and how to start the
//! command again.

pub(crate) mod command_line;
pub(crate) mod command_schema;
pub(crate) mod examples;
pub(crate) mod fit;
pub(crate) mod help;
pub(crate) mod reinvoke;
