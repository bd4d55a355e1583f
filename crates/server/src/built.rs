//! Facts about this build, which the build script puts into the binary.

use millstream_context::Build;

pub(crate) const BUILD: Build = Build {
    git_hash: env!("MILLSTREAM_BUILT_FROM"),
    built_at_s: env!("MILLSTREAM_BUILT_AT_S"),
    compiler: env!("MILLSTREAM_BUILT_BY"),
    libraries: include!(concat!(env!("OUT_DIR"), "/libraries.rs")),
};
