//! The end of a query that begins in the past.

use crate::{Error, QueryPlan, QueryRequest, RecordSource, Start, StreamDuration, Until};

/// The member of a request that names the end.
pub(crate) const UNTIL: &str = "until";

/// The end of the query in the past, if it has one.
pub(crate) fn until(plan: &QueryPlan, request: &QueryRequest) -> Result<Option<Until>, Error> {
    let refuse = |what: &str| Err(Error::Start { member: UNTIL, what: what.to_owned() });
    match &request.until {
        Some(Until::Never) => Ok(None),
        Some(_) if request.from == Start::Now => {
            refuse("it ends a query that begins in the past; say 'from', too, such as 'earliest'")
        }
        Some(_) if request.keep => refuse("a query with 'keep' goes on with what comes; leave one of both out"),
        Some(until) => Ok(Some(until.clone())),
        None => {
            let says_how_long = request.duration_ms.is_some()
                || matches!(plan.source, RecordSource::Stream(StreamDuration::Ms(_) | StreamDuration::Max));
            Ok((request.from != Start::Now && !says_how_long && !request.keep).then_some(Until::Now))
        }
    }
}
