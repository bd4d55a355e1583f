//! Service paths: where within a tenant an entity lies.

use std::fmt;

const LEVELS_MAX: usize = 10;
const LEVEL_MAX_CHARS: usize = 50;
const PATHS_MAX: usize = 10;
const ROOT: &str = "/";

/// Why text names no service path, or too many.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServicePathError {
    /// The text is no path.
    #[error(
        "Fiware-ServicePath '{0}': use up to {LEVELS_MAX} levels of 1 to {LEVEL_MAX_CHARS} of the characters A-Z a-z 0-9 _, \
         each after a slash; writes take exactly one path, reads also '/#' at its end"
    )]
    Illegal(String),
    /// A list is too long.
    #[error("Fiware-ServicePath lists {0} paths: at most {PATHS_MAX} are allowed; send several requests")]
    TooMany(usize),
}

/// The one path that `text` is, without a slash at its end.
///
/// # Errors
/// [`ServicePathError::Illegal`].
pub fn service_path(text: &str) -> Result<String, ServicePathError> {
    if text == ROOT {
        return Ok(text.to_owned());
    }
    let path = text.strip_suffix('/').unwrap_or(text);
    let level_is_legal = |level: &str| {
        (1..=LEVEL_MAX_CHARS).contains(&level.len()) && level.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
    };
    let levels: Vec<&str> = path.split('/').skip(1).collect();
    if path.starts_with('/') && levels.len() <= LEVELS_MAX && levels.iter().all(|level| level_is_legal(level)) {
        return Ok(path.to_owned());
    }
    Err(ServicePathError::Illegal(text.to_owned()))
}

/// Service paths that a read looks at; none means all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServicePaths(Vec<Pattern>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Exactly(String),
    /// This one and all below; empty for the root.
    Below(String),
}

impl ServicePaths {
    /// The paths of a list, separated by commas; `/#` at the end of one stands for all below it.
    ///
    /// # Errors
    /// [`ServicePathError`].
    pub fn parse(list: &str) -> Result<Self, ServicePathError> {
        let paths: Vec<&str> = list.split(',').map(str::trim).collect();
        if paths.len() > PATHS_MAX {
            return Err(ServicePathError::TooMany(paths.len()));
        }
        let pattern = |path: &&str| match path.strip_suffix("/#") {
            Some("") => Ok(Pattern::Below(String::new())),
            Some(parent) => service_path(parent).map(Pattern::Below),
            None => service_path(path).map(Pattern::Exactly),
        };
        paths.iter().map(pattern).collect::<Result<_, _>>().map(Self)
    }

    /// Whether every path is among them because none was named.
    pub fn are_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `path` is among them.
    pub fn have(&self, path: &str) -> bool {
        self.are_all()
            || self.0.iter().any(|pattern| match pattern {
                Pattern::Exactly(exact) => path == exact,
                Pattern::Below(parent) => {
                    path.strip_prefix(parent.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                }
            })
    }
}

impl fmt::Display for ServicePaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, pattern) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match pattern {
                Pattern::Exactly(path) => write!(f, "{comma}{path}")?,
                Pattern::Below(path) => write!(f, "{comma}{path}/#")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_shown_as_it_is_read() {
        for list in ["/", "/a", "/a/#,/b_1", "/#"] {
            let paths = ServicePaths::parse(list).unwrap();
            assert_eq!(paths.to_string(), list);
            assert_eq!(ServicePaths::parse(&paths.to_string()).unwrap(), paths);
        }
        assert_eq!(ServicePaths::default().to_string(), "");
    }
}
