//! What is known of this build, put into the binary by the build script.

use millstream_context::Build;

/// This one.
pub(crate) const BUILD: Build = Build {
    git_hash: env!("MILLSTREAM_BUILT_FROM"),
    built_at_s: env!("MILLSTREAM_BUILT_AT_S"),
    compiler: env!("MILLSTREAM_BUILT_BY"),
    libraries: include!(concat!(env!("OUT_DIR"), "/libraries.rs")),
};
