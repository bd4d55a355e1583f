//! Service paths: the place of an entity within a tenant.

use std::fmt;

const LEVELS_MAX: usize = 10;
const LEVEL_MAX_CHARS: usize = 50;
const PATHS_MAX: usize = 10;
const ROOT: &str = "/";

/// The reason why a text names no service path, or too many.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServicePathError {
    /// The text is not a legal path.
    #[error(
        "Fiware-ServicePath '{0}': use up to {LEVELS_MAX} levels of 1 to {LEVEL_MAX_CHARS} of the characters A-Z a-z 0-9 _, \
         each after a slash; writes take exactly one path, reads also '/#' at its end"
    )]
    Illegal(String),
    /// The list has too many paths.
    #[error("Fiware-ServicePath lists {0} paths: at most {PATHS_MAX} are allowed; send several requests")]
    TooMany(usize),
}

/// Parses exactly one path and removes a slash at its end.
///
/// # Errors
/// [`ServicePathError::Illegal`] if the text is not one path.
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

/// The service paths that a read covers; an empty list covers all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServicePaths(Vec<PathPattern>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PathPattern {
    Exactly(String),
    /// A path and everything below it; empty for the root.
    Below(String),
}

impl ServicePaths {
    /// Parses a comma-separated list of paths; `/#` at the end of a path includes everything below it.
    ///
    /// # Errors
    /// [`ServicePathError`] if a path is illegal, or if the list is too long.
    pub fn parse(list: &str) -> Result<Self, ServicePathError> {
        let paths: Vec<&str> = list.split(',').map(str::trim).collect();
        if paths.len() > PATHS_MAX {
            return Err(ServicePathError::TooMany(paths.len()));
        }
        let pattern = |path: &&str| match path.strip_suffix("/#") {
            Some("") => Ok(PathPattern::Below(String::new())),
            Some(parent) => service_path(parent).map(PathPattern::Below),
            None => service_path(path).map(PathPattern::Exactly),
        };
        paths.iter().map(pattern).collect::<Result<_, _>>().map(Self)
    }

    /// `true` if the list is empty and so covers every path.
    pub fn are_all(&self) -> bool {
        self.0.is_empty()
    }

    /// `true` if the list covers `path`.
    pub fn have(&self, path: &str) -> bool {
        self.are_all()
            || self.0.iter().any(|pattern| match pattern {
                PathPattern::Exactly(exact) => path == exact,
                PathPattern::Below(parent) => {
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
                PathPattern::Exactly(path) => write!(f, "{comma}{path}")?,
                PathPattern::Below(path) => write!(f, "{comma}{path}/#")?,
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
