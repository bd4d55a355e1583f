//! SQL expressions over one record: parsing, compiling and evaluation.
//!
//! [`parser`] turns a text into an [`Expr`], or into [`Diagnostic`]s that name the place of each error. A [`Compiler`] turns
//! an expression into an [`Operand`] or a [`Predicate`] with numbered fields, which has a [`Value`] for each [`Row`]. A
//! [`PathTree`] finds the fields of a JSON payload in one pass over its bytes. [`Columns`] does all this for several
//! expressions over the same records, and a [`Projection`] writes the object that a select list makes of each.
//!
//! A [`Chunk`] evaluates conditions over some hundred records at once, as columns with a [`Selection`]. An [`AggregateState`] takes
//! records in, merges with others and can be stored. A [`HistoryState`] is what a call such as `LAG(a)` keeps of the records of a
//! key.
//!
//! Not here: whole queries and their results (`query`), and the source of the records.

mod aggregate;
mod aggregation;
mod chunk;
mod columns;
mod compiler;
mod cursor;
mod date_part;
mod diagnostic;
mod display;
mod eval;
mod expr;
mod field;
mod field_table;
mod formula;
mod function;
mod hash;
mod history;
mod item;
mod keyword;
mod lexer;
mod limits;
mod nested;
mod operand;
mod operator;
mod parameters;
pub mod parser;
mod pattern;
mod projection;
mod record;
mod scan;
mod slab;
mod statistic;
mod suggest;
mod text;
mod timestamp;
mod value;
mod value_type;
mod window;

pub use aggregate::listed;
pub use aggregation::{
    AggregateShape, AggregateState, Bounds, DistributionKind, FigureKind, FigureOf, ListKind, Nested, SketchMeta,
    SketchSizes, order_values, read_key, read_values, write_input, write_tuple,
};
pub use chunk::{Chunk, ChunkPayload, ChunkRow, ConditionId, ConditionResults, Selection, Truth};
pub use columns::{Columns, ColumnsOf, ColumnsScratch};
pub use compiler::Compiler;
pub use cursor::{Cursor, ParseError};
pub use diagnostic::{Diagnostic, TextPosition};
pub use eval::Row;
pub use expr::{
    Aggregate, AggregateList, AllMembers, Expr, HistoryCall, Item, ListOrder, Literal, SelectList, Summary, WindowBound,
};
pub use field::{Field, Name, PathStep};
pub use field_table::FieldTable;
pub use function::{EXAMPLE_RECORD, Function, FunctionGroup, FunctionRow, HistoryFunction, functions};
pub use hash::{HashWriter, IdentityHasher, hash_gram, hash_text, hash_value, spread};
pub use history::HistoryState;
pub use lexer::{Token, excerpt};
pub use limits::ParserLimits;
pub use operand::{Formula, Operand, Predicate};
pub use operator::{Comparison, Operator};
pub use parameters::{Parameters, Parametric, UnfitParameter};
pub use pattern::Pattern;
pub use projection::{Projection, ProjectionError};
pub use record::{Headers, InputRecord, Metadata};
pub use scan::{MalformedJson, PathTree, is_json, is_object};
pub use slab::Slab;
pub use statistic::{Points, Statistic};
pub use suggest::nearest;
pub use timestamp::{time_ms, time_pattern_fault};
pub use value::{CanonicalNumber, EvalError, Unreadable, Value, write_text};
pub use value_type::Type;
pub use window::{
    CalendarStep, CalendarWindows, KeyWindows, Trigger, TriggerPlan, TriggerWhen, TriggeredWindows, TriggeringRecord,
    WindowExtent, WindowShape, WindowState, WindowTimes,
};
