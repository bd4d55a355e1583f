//! The parameters of a request's path.

use std::borrow::Cow;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use crate::{Problem, Reason};

/// Most parameters that one path may have.
pub const PATH_PARAMS_MAX: usize = 6;

/// The positions of a path's parameters; they are decoded on demand.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathParams {
    names: Arc<[String]>,
    ranges: [(u16, u16); PATH_PARAMS_MAX],
}

impl PathParams {
    /// `values` are slices of `path`, in the order of `names`.
    pub(crate) fn new<'p>(names: &Arc<[String]>, path: &'p str, values: impl Iterator<Item = &'p str>) -> Self {
        let mut ranges = [(0, 0); PATH_PARAMS_MAX];
        for (range, value) in ranges.iter_mut().zip(values) {
            let start = value.as_ptr() as usize - path.as_ptr() as usize;
            *range = (start as u16, (start + value.len()) as u16);
        }
        Self { names: names.clone(), ranges }
    }

    /// Returns name and decoded value of the parameter at `index`.
    pub(crate) fn at<'p>(&self, path: &'p str, index: usize) -> Result<(&str, Cow<'p, str>), Problem> {
        let name =
            self.names.get(index).ok_or_else(|| Problem::internal("the path has fewer parameters than asked for"))?;
        let raw = self.raw(path, index);
        let value = percent_decode_str(raw).decode_utf8().map_err(|_| {
            Problem::new(Reason::MalformedParameter, format!("path parameter '{name}' is not UTF-8 once decoded"))
                .value(raw)
                .remedy("percent-encode UTF-8")
        })?;
        Ok((name, value))
    }

    /// The raw parameter at `index`; empty if the path has fewer.
    fn raw<'a>(&self, path: &'a str, index: usize) -> &'a str {
        let (start, end) = self.ranges.get(index).copied().unwrap_or_default();
        path.get(start as usize..end as usize).unwrap_or_default()
    }

    pub(crate) fn get<'p>(&self, path: &'p str, name: &str) -> Result<Option<Cow<'p, str>>, Problem> {
        match self.names.iter().position(|known| known == name) {
            Some(index) => self.at(path, index).map(|(_, value)| Some(value)),
            None => Ok(None),
        }
    }
}
