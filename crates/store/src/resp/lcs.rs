//! LCS: the longest common subsequence of two strings.

use bytes::Bytes;

use crate::resp::context::{Context, Fault, Outcome, integer_argument, is};

/// The options of LCS, which select its reply.
#[derive(Debug, Default)]
struct Options {
    only_length: bool,
    ranges: bool,
    match_min_length: u64,
    with_match_length: bool,
}

impl Options {
    fn parse(arguments: &[Bytes]) -> Result<Self, Fault> {
        let (mut options, mut rest) = (Self::default(), arguments.iter());
        while let Some(option) = rest.next() {
            match option {
                option if is(option, "idx") => options.ranges = true,
                option if is(option, "len") => options.only_length = true,
                option if is(option, "withmatchlen") => options.with_match_length = true,
                option if is(option, "minmatchlen") => {
                    let length = integer_argument(rest.next().ok_or(Fault::SYNTAX)?)?;
                    options.match_min_length = u64::try_from(length).unwrap_or(0);
                }
                _ => return Err(Fault::SYNTAX),
            }
        }
        if options.ranges && options.only_length {
            return Err(Fault::error("ERR If you want both the length and indexes, please just use IDX."));
        }
        Ok(options)
    }
}

/// Lengths of the longest common subsequences of all pairs of beginnings.
struct Lengths {
    table: Vec<u32>,
    width: usize,
}

impl Lengths {
    fn of(a: &[u8], b: &[u8]) -> Self {
        let width = b.len() + 1;
        let mut table = vec![0u32; (a.len() + 1) * width];
        for (row, a) in a.iter().enumerate() {
            let (above, below) = table.split_at_mut((row + 1) * width);
            let above = &above[row * width..];
            let mut left = 0;
            for (column, b) in b.iter().enumerate() {
                left = if a == b { above[column] + 1 } else { above[column + 1].max(left) };
                below[column + 1] = left;
            }
        }
        Self { table, width }
    }

    fn at(&self, a: usize, b: usize) -> u32 {
        self.table[a * self.width + b]
    }
}

/// A run of bytes that both strings have: where it ends in each (exclusive), and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CommonRun {
    a_end: usize,
    b_end: usize,
    length: usize,
}

/// The runs of the longest common subsequence, the last one first.
fn runs(a: &[u8], b: &[u8], lengths: &Lengths) -> Vec<CommonRun> {
    let (mut i, mut j, mut runs) = (a.len(), b.len(), Vec::<CommonRun>::new());
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            match runs.last_mut() {
                Some(run) if run.a_end - run.length == i && run.b_end - run.length == j => run.length += 1,
                _ => runs.push(CommonRun { a_end: i, b_end: j, length: 1 }),
            }
            (i, j) = (i - 1, j - 1);
        } else if lengths.at(i - 1, j) > lengths.at(i, j - 1) {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    runs
}

pub(crate) fn lcs(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let options = Options::parse(&arguments[3..])?;
    let (a, b) = (context.bytes(&arguments[1])?, context.bytes(&arguments[2])?);
    let table_bytes = (a.len() as u64 + 1).saturating_mul(b.len() as u64 + 1).saturating_mul(4);
    if table_bytes > context.value_max_bytes {
        return Err(Fault::error("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"));
    }
    let lengths = Lengths::of(&a, &b);
    let length = lengths.at(a.len(), b.len());
    if options.only_length {
        context.reply.integer(length.into());
        return Ok(());
    }
    let runs = runs(&a, &b, &lengths);
    if options.ranges {
        reply_ranges(context, &runs, &options, length);
        return Ok(());
    }
    let mut common = Vec::with_capacity(length as usize);
    runs.iter().rev().for_each(|run| common.extend_from_slice(&a[run.a_end - run.length..run.a_end]));
    context.reply.bulk(&common);
    Ok(())
}

fn reply_ranges(context: &mut Context<'_>, runs: &[CommonRun], options: &Options, length: u32) {
    let long_enough = |run: &&CommonRun| run.length as u64 >= options.match_min_length;
    let reply = &mut context.reply;
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(runs.iter().filter(long_enough).count());
    for CommonRun { a_end, b_end, length } in runs.iter().filter(long_enough) {
        reply.array(if options.with_match_length { 3 } else { 2 });
        for end in [a_end, b_end] {
            reply.array(2);
            reply.count(end - length);
            reply.count(end - 1);
        }
        if options.with_match_length {
            reply.count(*length);
        }
    }
    reply.bulk(b"len");
    reply.integer(length.into());
}
