//! The functions behind `|`: a table of names, and what they are called with.
//!
//! A function returns null where its input or an argument is missing or of another kind; further arguments are ignored.

use serde_json::Value;

use crate::input::Input;
use crate::{choice_functions, kind_functions, list_functions, number_functions, text_functions, time_functions};

/// Returns `None` for null.
type Evaluate = for<'c, 'a> fn(Input<'c, 'a>) -> Option<Value>;

#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    /// The first argument is a regular expression.
    pub(crate) takes_pattern: bool,
    pub(crate) evaluate: Evaluate,
}

impl Function {
    /// Finds a function by its name.
    pub(crate) fn of(name: &str) -> Option<&'static Self> {
        FUNCTIONS.iter().find(|function| function.name == name)
    }
}

const fn plain(name: &'static str, evaluate: Evaluate) -> Function {
    Function { name, takes_pattern: false, evaluate }
}

const fn of_pattern(name: &'static str, evaluate: Evaluate) -> Function {
    Function { name, takes_pattern: true, evaluate }
}

pub(crate) static FUNCTIONS: [Function; 40] = [
    plain("uppercase", text_functions::uppercase),
    plain("lowercase", text_functions::lowercase),
    plain("trim", text_functions::trim),
    plain("len", text_functions::len),
    plain("split", text_functions::split),
    plain("indexOf", text_functions::index_of),
    plain("substring", text_functions::substring),
    plain("includes", text_functions::includes),
    plain("replaceStr", text_functions::replace_str),
    of_pattern("replaceRegex", text_functions::replace_regex),
    of_pattern("matchRegex", text_functions::match_regex),
    plain("isNaN", kind_functions::is_nan),
    plain("parseInt", kind_functions::parse_int),
    plain("parseFloat", kind_functions::parse_float),
    plain("typeOf", kind_functions::type_of),
    plain("toString", kind_functions::to_string),
    plain("toJson", kind_functions::to_json),
    plain("round", number_functions::round),
    plain("floor", number_functions::floor),
    plain("ceil", number_functions::ceil),
    plain("toFixed", number_functions::to_fixed),
    plain("log", number_functions::log),
    plain("log10", number_functions::log10),
    plain("log2", number_functions::log2),
    plain("sqrt", number_functions::sqrt),
    plain("mapper", choice_functions::mapper),
    plain("nMapper", choice_functions::n_mapper),
    plain("thMapper", choice_functions::th_mapper),
    plain("values", list_functions::values),
    plain("keys", list_functions::keys),
    plain("arrSum", list_functions::arr_sum),
    plain("arrAvg", list_functions::arr_avg),
    plain("arrMax", list_functions::arr_max),
    plain("arrMin", list_functions::arr_min),
    plain("arrMed", list_functions::arr_med),
    plain("arrSort", list_functions::arr_sort),
    plain("arrReverse", list_functions::arr_reverse),
    plain("now", time_functions::now),
    plain("toIsoString", time_functions::to_iso_string),
    plain("getTime", time_functions::get_time),
];
