//! The types of settings, as DescribeConfigs numbers them.

pub(crate) const TYPE_BOOLEAN: i8 = 1;
pub(crate) const TYPE_STRING: i8 = 2;
pub(crate) const TYPE_INT: i8 = 3;
pub(crate) const TYPE_LONG: i8 = 5;
pub(crate) const TYPE_DOUBLE: i8 = 6;
pub(crate) const TYPE_LIST: i8 = 7;
