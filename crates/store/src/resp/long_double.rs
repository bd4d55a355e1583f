//! Floating-point numbers with 64 bits of mantissa, as INCRBYFLOAT computes with: the `long double` of x86-64, on which
//! Redis's replies rest. With 53 bits 3.0 + 1.1 would be 4.09999999999999964.
//!
//! Values are normalised: the top bit of `mantissa` is set, unless the value is zero.

use std::cmp::Ordering;

/// Largest exponent of a finite value whose mantissa is a whole number of 64 bits.
const EXPONENT_MAX: i32 = 16_383 - 63;
/// Smallest exponent; smaller values become zero (the real format has a few subnormal ones).
const EXPONENT_MIN: i32 = -16_382 - 63;
/// Decimal exponents beyond it are infinity or zero whatever the digits are.
const DECIMAL_EXPONENT_MAX: i64 = 12_000;
/// Longest text of a number, as in Redis.
const TEXT_MAX_BYTES: usize = 5 * 1_024;
/// Digits behind the point in the text of a value.
const FRACTION_DIGITS: u32 = 17;

/// A value: `mantissa · 2^exponent`, negative or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LongDouble {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

impl LongDouble {
    pub(crate) const ZERO: Self = Self { negative: false, mantissa: 0, exponent: 0 };

    /// Reads decimal text such as `-1.5e3`, or hexadecimal text such as `0x1.8p3`, rounded to the nearest value. `None`
    /// if it is not a number, or not a finite one that can be represented.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_MAX_BYTES {
            return None;
        }
        let (negative, rest) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let value = match rest {
            [b'0', b'x' | b'X', hexadecimal @ ..] => Self::from_hexadecimal(hexadecimal)?,
            _ => {
                let (digits, exponent) = decimal(rest)?;
                Self::from_decimal(&digits, exponent)?
            }
        };
        Some(Self { negative, ..value })
    }

    /// Reads hexadecimal digits, perhaps with a point and a power of two such as `p-3`, as C's `strtold` does.
    fn from_hexadecimal(text: &[u8]) -> Option<Self> {
        let (mut mantissa, mut exponent, mut sticky, mut digits) = (0u128, 0i64, false, 0);
        let (mut behind_point, mut rest) = (false, text);
        while let [byte, after @ ..] = rest {
            match char::from(*byte).to_digit(16) {
                Some(digit) => {
                    digits += 1;
                    exponent -= if behind_point { 4 } else { 0 };
                    if mantissa >> 120 == 0 {
                        mantissa = mantissa << 4 | u128::from(digit);
                    } else {
                        sticky |= digit != 0;
                        exponent += 4;
                    }
                }
                None if *byte == b'.' && !behind_point => behind_point = true,
                None => break,
            }
            rest = after;
        }
        if let [b'p' | b'P', power @ ..] = rest {
            exponent = exponent.checked_add(std::str::from_utf8(power).ok()?.parse::<i64>().ok()?)?;
        } else if !rest.is_empty() {
            return None;
        }
        let exponent = i32::try_from(exponent).ok().filter(|exponent| exponent.abs() < 100_000);
        if digits == 0 { None } else { Self::normalised(false, mantissa, exponent?, sticky) }
    }

    /// `digits · 10^exponent`.
    fn from_decimal(digits: &[u8], exponent: i64) -> Option<Self> {
        let mut number = Natural::from_digits(digits);
        if number.is_zero() {
            return Some(Self::ZERO);
        }
        if exponent.abs() > DECIMAL_EXPONENT_MAX {
            return None;
        }
        if exponent >= 0 {
            for _ in 0..exponent {
                number.multiply_add(10, 0);
            }
            return Self::rounded(&number, 0, false);
        }
        // Enough bits are put in front that 66 are left after the division.
        let divisions = exponent.unsigned_abs();
        let shift = u32::try_from(divisions * 4 + 96).ok()?.div_ceil(32) * 32;
        number.shift_left_words(shift as usize / 32);
        let mut inexact = false;
        for _ in 0..divisions {
            inexact |= number.divide(10) != 0;
        }
        Self::rounded(&number, -i32::try_from(shift).ok()?, inexact)
    }

    /// The value nearest to `number · 2^exponent`; `inexact` if the true number is a little larger.
    fn rounded(number: &Natural, exponent: i32, inexact: bool) -> Option<Self> {
        let bits = number.bits();
        let excess = bits.saturating_sub(66);
        let (top, sticky) = number.top(excess);
        Self::normalised(false, top, exponent + i32::try_from(excess).ok()?, inexact || sticky)
    }

    /// Rounds to 64 bits, half to even.
    fn normalised(negative: bool, mantissa: u128, exponent: i32, sticky: bool) -> Option<Self> {
        if mantissa == 0 {
            return Some(Self::ZERO);
        }
        let bits = 128 - mantissa.leading_zeros();
        let (mut mantissa, mut exponent) = if bits <= 64 {
            // Only exact values come with so few bits.
            (mantissa << (64 - bits), exponent - (64 - bits) as i32)
        } else {
            let drop = bits - 64;
            let (kept, dropped, half) = (mantissa >> drop, mantissa & ((1 << drop) - 1), 1u128 << (drop - 1));
            let up = match dropped.cmp(&half) {
                Ordering::Greater => true,
                Ordering::Equal => sticky || kept & 1 == 1,
                Ordering::Less => false,
            };
            (kept + u128::from(up), exponent + drop as i32)
        };
        if mantissa >> 64 != 0 {
            mantissa >>= 1;
            exponent += 1;
        }
        match exponent {
            EXPONENT_MIN..=EXPONENT_MAX => Some(Self { negative, mantissa: u64::try_from(mantissa).ok()?, exponent }),
            _ => None,
        }
    }

    /// The sum, rounded; `None` if it is infinite.
    pub(crate) fn add(self, other: Self) -> Option<Self> {
        if self.mantissa == 0 || other.mantissa == 0 {
            return Some(if self.mantissa == 0 { other } else { self });
        }
        let (large, small) = if self.magnitude() >= other.magnitude() { (self, other) } else { (other, self) };
        // 62 bits behind the mantissa and one for the carry; what is shifted out only matters for rounding.
        let distance = u32::try_from(large.exponent - small.exponent).ok()?;
        let wide = u128::from(large.mantissa) << 62;
        let narrow = u128::from(small.mantissa) << 62;
        let shifted = narrow.checked_shr(distance).unwrap_or(0);
        let sticky = shifted.checked_shl(distance).unwrap_or(0) != narrow;
        let exponent = large.exponent - 62;
        if large.negative == small.negative {
            return Self::normalised(large.negative, wide + shifted, exponent, sticky);
        }
        // The true difference is a little less than this one if bits were shifted out: one unit less, and a little more.
        let difference = wide - shifted - u128::from(sticky);
        Self::normalised(large.negative, difference, exponent, sticky)
    }

    fn magnitude(self) -> (i32, u64) {
        (self.exponent, self.mantissa)
    }

    /// Decimal text with at most 17 digits behind the point and no zeros at its end, as Redis stores it.
    pub(crate) fn text(self) -> String {
        let (whole, fraction) = self.decimal_parts();
        let mut text = String::with_capacity(whole.len() + 20);
        if self.negative && !(whole == "0" && fraction == 0) {
            text.push('-');
        }
        text.push_str(&whole);
        if fraction != 0 {
            let digits = format!("{fraction:017}");
            text.push('.');
            text.push_str(digits.trim_end_matches('0'));
        }
        text
    }

    /// The whole part, and the fraction in units of 10^-17.
    fn decimal_parts(self) -> (String, u128) {
        if self.exponent >= 0 {
            let mut number = Natural::from_u64(self.mantissa);
            number.shift_left(self.exponent.unsigned_abs());
            return (number.digits(), 0);
        }
        let unit = 10u128.pow(FRACTION_DIGITS);
        let shift = self.exponent.unsigned_abs();
        let scaled = u128::from(self.mantissa) * unit;
        let kept = scaled.checked_shr(shift).unwrap_or(0);
        let dropped = scaled - kept.checked_shl(shift).unwrap_or(0);
        let half = 1u128.checked_shl(shift - 1).unwrap_or(u128::MAX);
        let up = dropped > half || (dropped == half && kept & 1 == 1);
        let rounded = kept + u128::from(up);
        ((rounded / unit).to_string(), rounded % unit)
    }
}

/// The digits of decimal text without sign and point, and the power of ten behind them.
fn decimal(text: &[u8]) -> Option<(Vec<u8>, i64)> {
    let (mut digits, mut exponent, mut rest) = (Vec::with_capacity(text.len()), 0i64, text);
    let mut behind_point = false;
    while let [byte, after @ ..] = rest {
        match byte {
            b'0'..=b'9' => {
                digits.push(byte - b'0');
                exponent -= i64::from(behind_point);
            }
            b'.' if !behind_point => behind_point = true,
            _ => break,
        }
        rest = after;
    }
    if digits.is_empty() {
        return None;
    }
    match rest {
        [] => {}
        [b'e' | b'E', power @ ..] => {
            let power = std::str::from_utf8(power).ok()?;
            // A sign alone is no number; `parse` takes both signs.
            exponent = exponent.checked_add(power.parse::<i64>().ok()?)?;
        }
        _ => return None,
    }
    Some((digits, exponent))
}

/// A natural number of any size; words of 32 bits, the lowest first, none at the end that is zero.
struct Natural(Vec<u32>);

impl Natural {
    fn from_digits(digits: &[u8]) -> Self {
        let mut number = Self(Vec::new());
        for digit in digits {
            number.multiply_add(10, u32::from(*digit));
        }
        number
    }

    fn from_u64(value: u64) -> Self {
        let mut number = Self(vec![value as u32, (value >> 32) as u32]);
        number.trim();
        number
    }

    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn multiply_add(&mut self, factor: u32, carry: u32) {
        let mut carry = u64::from(carry);
        for word in &mut self.0 {
            let product = u64::from(*word) * u64::from(factor) + carry;
            *word = product as u32;
            carry = product >> 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    /// Divides in place and returns the remainder.
    fn divide(&mut self, divisor: u32) -> u32 {
        let mut remainder = 0u64;
        for word in self.0.iter_mut().rev() {
            let dividend = remainder << 32 | u64::from(*word);
            *word = (dividend / u64::from(divisor)) as u32;
            remainder = dividend % u64::from(divisor);
        }
        self.trim();
        remainder as u32
    }

    fn shift_left_words(&mut self, words: usize) {
        if !self.is_zero() {
            self.0.splice(0..0, std::iter::repeat_n(0, words));
        }
    }

    fn shift_left(&mut self, bits: u32) {
        self.multiply_add(1 << (bits % 32), 0);
        self.shift_left_words(bits as usize / 32);
    }

    fn bits(&self) -> u32 {
        let unused = self.0.last().map_or(0, |top| top.leading_zeros());
        u32::try_from(self.0.len()).unwrap_or(u32::MAX / 32).saturating_mul(32) - unused
    }

    /// The bits above the lowest `drop`, which are few enough, and whether any bit below is set.
    fn top(&self, drop: u32) -> (u128, bool) {
        let (words, bits) = (drop as usize / 32, drop % 32);
        let mut top = 0u128;
        for word in self.0[words..].iter().rev() {
            top = top << 32 | u128::from(*word);
        }
        let low = self.0[..words].iter().any(|word| *word != 0) || top & ((1 << bits) - 1) != 0;
        (top >> bits, low)
    }

    fn digits(mut self) -> String {
        let mut groups = Vec::new();
        while !self.is_zero() {
            groups.push(self.divide(1_000_000_000));
        }
        let Some(first) = groups.pop() else { return "0".to_owned() };
        let mut text = first.to_string();
        groups.iter().rev().for_each(|group| text.push_str(&format!("{group:09}")));
        text
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(a: &str, b: &str) -> Option<String> {
        Some(LongDouble::parse(a.as_bytes())?.add(LongDouble::parse(b.as_bytes())?)?.text())
    }

    #[test]
    fn sums_are_those_of_redis() {
        let cases: &[(&str, &str, &str)] = &[
            ("3.0", "1.1", "4.1"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("1", "-1.1", "-0.1"),
            ("0.1", "-0.1", "0"),
            ("17179869184", "1.5", "17179869185.5"),
            ("0.0243902439024390252", "-0.0243902439024390252", "0"),
            ("1000000000000000000", "0.1", "1000000000000000000.125"),
            ("0", "1e-18", "0"),
            ("-1e-18", "0", "0"),
            ("0.3", "0.6", "0.9"),
            ("9007199254740993", "0", "9007199254740993"),
            ("1e30", "1", "1000000000000000000024696061952"),
            (".5", "5.", "5.5"),
            ("+1", "1E+2", "101"),
            ("0x10", "0.1", "16.1"),
            ("-0X1.8p3", "0xA", "-2"),
            ("0x1P-2", "0", "0.25"),
            ("0x123456789abcdef0123456789abcdef01p-64", "0", "20988295479420645122"),
        ];
        for (a, b, expected) in cases {
            assert_eq!(sum(a, b).as_deref(), Some(*expected), "{a} + {b}");
        }
    }

    #[test]
    fn what_is_no_finite_number_is_refused() {
        for text in [
            "",
            " 1",
            "1 ",
            "abc",
            "1e",
            "1e+",
            "--1",
            "1.2.3",
            ".",
            "nan",
            "1e5000",
            "1e999999999999",
            "0x",
            "0xp1",
            "0x1p",
            "0x1g",
        ] {
            assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text:?}");
        }
        let largest = LongDouble::parse(b"1.18e4932").unwrap();
        assert_eq!(largest.add(largest), None);
    }

    proptest! {
        /// Sums of two doubles of similar size are exact in 64 bits, so doubles with few digits agree.
        #[test]
        fn small_decimals_add_exactly(a in -1_000_000_000i64..1_000_000_000, b in -1_000_000_000i64..1_000_000_000) {
            let decimal = |value: i64| format!("{}{}.{:03}", if value < 0 { "-" } else { "" }, value.abs() / 1_000, value.abs() % 1_000);
            let expected = match decimal(a + b) {
                text if a + b == 0 => { let _ = text; "0".to_owned() }
                text => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            };
            // The error of a sum below 2^21 lies beyond the 12th digit behind the point.
            let actual = sum(&decimal(a), &decimal(b)).unwrap();
            let close = (actual.parse::<f64>().unwrap() - expected.parse::<f64>().unwrap()).abs() < 1e-11;
            prop_assert!(close, "{} + {} = {}, not {}", decimal(a), decimal(b), actual, expected);
        }

        #[test]
        fn text_is_read_back_as_the_same_value(mantissa in 1u64.., exponent in -70i32..40) {
            let value = LongDouble::normalised(false, mantissa.into(), exponent, false).unwrap();
            // Values with more than 17 digits behind the point are cut.
            if exponent >= -40 && value.mantissa.trailing_zeros() as i32 + value.exponent >= -17 {
                prop_assert_eq!(LongDouble::parse(value.text().as_bytes()), Some(value));
            }
        }
    }
}
