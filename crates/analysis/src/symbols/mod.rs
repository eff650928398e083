//! Resolves frames: function, file, line and module.

pub mod definitions;
pub mod modules;
pub mod names;
pub mod native;
pub mod sources;

pub use modules::{Modules, is_import_system};
pub use names::{Location, LocationId, Names};
pub use native::NativeNames;
pub use sources::Sources;
