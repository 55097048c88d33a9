//! `date` and `sleep`: on the command's own clock, which only `sleep` moves.

use super::Invocation;
use crate::shell::meter::Stop;

pub(super) fn sleep(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let Some(options) = invocation.options(&[])? else { return Ok(2) };
    if options.operands.is_empty() {
        return invocation.fail(1, "missing operand");
    }
    let mut total = 0.0;
    for operand in &options.operands {
        match seconds(operand) {
            Some(seconds) => total += seconds,
            None => {
                let shown = String::from_utf8_lossy(operand).into_owned();
                return invocation.fail(1, &format!("invalid time interval '{shown}'"));
            }
        }
    }
    let milliseconds = (total * 1000.0).min(1e15) as u64;
    let fuel = milliseconds.saturating_mul(invocation.limits.fuel_per_millisecond);
    invocation.meter.charge(fuel)?;
    *invocation.slept = invocation.slept.saturating_add(milliseconds);
    Ok(0)
}

/// `1.5`, `2m`, `1h`, `1d`.
pub(super) fn seconds(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let (digits, factor) = match text.char_indices().last()? {
        (at, 's') => (text.get(..at)?, 1.0),
        (at, 'm') => (text.get(..at)?, 60.0),
        (at, 'h') => (text.get(..at)?, 3600.0),
        (at, 'd') => (text.get(..at)?, 86400.0),
        _ => (text, 1.0),
    };
    let number: f64 = digits.parse().ok()?;
    (number >= 0.0 && number.is_finite()).then_some(number * factor)
}

pub(super) fn date(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = ["u|utc", "R|rfc-email", "I|iso-8601=?"];
    let Some(options) = invocation.options(&known)? else { return Ok(2) };
    let now = invocation.limits.clock_seconds.saturating_add(*invocation.slept / 1000);
    let date = Date::new(now);
    let format = match options.operands.as_slice() {
        [] if options.has("I") => match options.value("I") {
            None | Some(b"" | b"date") => b"%Y-%m-%d".to_vec(),
            _ => b"%Y-%m-%dT%H:%M:%S+00:00".to_vec(),
        },
        [] if options.has("R") => b"%a, %d %b %Y %H:%M:%S +0000".to_vec(),
        [] => b"%a %b %e %H:%M:%S UTC %Y".to_vec(),
        [format] => match format.strip_prefix(b"+") {
            Some(format) => format.to_vec(),
            None => return invocation.fail(2, "unsupported: setting the date"),
        },
        _ => return invocation.fail(1, "extra operand"),
    };
    match date.format(&String::from_utf8_lossy(&format)) {
        Ok(text) => invocation.line(text.as_bytes()).map(|()| 0),
        Err(letter) => invocation.fail(2, &format!("unsupported: the format %{letter}")),
    }
}

/// A time as `ls -l` shows it.
pub(super) fn listed(seconds: u64) -> String {
    Date::new(seconds).format("%b %e  %Y").unwrap_or_default()
}

/// A time as `diff -u` writes it behind a name.
pub(super) fn stamped(seconds: u64) -> String {
    Date::new(seconds).format("\t%Y-%m-%d %H:%M:%S.000000000 +0000").unwrap_or_default()
}

/// A moment in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Date {
    seconds: u64,
    year: u64,
    month: usize,
    day: u64,
    day_of_year: u64,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

impl Date {
    fn new(seconds: u64) -> Self {
        // Years beyond any use are not counted out one by one.
        let mut days = (seconds / 86400).min(4_000_000);
        let mut year = 1970;
        let leap = |year: u64| {
            (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400)
        };
        loop {
            let length = if leap(year) { 366 } else { 365 };
            if days < length {
                break;
            }
            days -= length;
            year += 1;
        }
        let day_of_year = days + 1;
        let february = if leap(year) { 29 } else { 28 };
        let mut month = 0;
        for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
            if days < length {
                break;
            }
            days -= length;
            month += 1;
        }
        Self { seconds, year, month, day: days + 1, day_of_year }
    }

    fn format(&self, format: &str) -> Result<String, char> {
        let time = self.seconds % 86400;
        let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
        let weekday_index = (self.seconds / 86400 % 7) as usize;
        let weekday = DAYS.get(weekday_index).copied().unwrap_or_default();
        let month = MONTHS.get(self.month).copied().unwrap_or_default();
        let short = |name: &str| name.chars().take(3).collect::<String>();
        let mut text = String::new();
        let mut letters = format.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                text.push(letter);
                continue;
            }
            let part = match letters.next() {
                Some('Y') => self.year.to_string(),
                Some('y') => format!("{:02}", self.year % 100),
                Some('m') => format!("{:02}", self.month + 1),
                Some('d') => format!("{:02}", self.day),
                Some('e') => format!("{:2}", self.day),
                Some('j') => format!("{:03}", self.day_of_year),
                Some('H') => format!("{hour:02}"),
                Some('I') => format!("{:02}", (hour + 11) % 12 + 1),
                Some('M') => format!("{minute:02}"),
                Some('S') => format!("{second:02}"),
                Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
                Some('N') => "000000000".to_owned(),
                Some('s') => self.seconds.to_string(),
                Some('A') => weekday.to_owned(),
                Some('a') => short(weekday),
                Some('u') => ((weekday_index + 3) % 7 + 1).to_string(),
                Some('w') => ((weekday_index + 4) % 7).to_string(),
                Some('B') => month.to_owned(),
                Some('b' | 'h') => short(month),
                Some('F') => self.format("%Y-%m-%d")?,
                Some('T') => self.format("%H:%M:%S")?,
                Some('R') => self.format("%H:%M")?,
                Some('D') => self.format("%m/%d/%y")?,
                Some('Z') => "UTC".to_owned(),
                Some('z') => "+0000".to_owned(),
                Some('n') => "\n".to_owned(),
                Some('t') => "\t".to_owned(),
                Some('%') => "%".to_owned(),
                Some(other) => return Err(other),
                None => "%".to_owned(),
            };
            text.push_str(&part);
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_years() {
        for (seconds, expected) in [
            (0, "1970-01-01 Thu 001"),
            (951_782_400, "2000-02-29 Tue 060"),
            (1_767_225_600, "2026-01-01 Thu 001"),
            (4_107_542_399, "2100-02-28 Sun 059"),
        ] {
            assert_eq!(Date::new(seconds).format("%F %a %j").unwrap(), expected);
        }
        assert!(Date::new(u64::MAX).format("%c").is_err());
    }

    #[test]
    fn intervals_have_units() {
        assert_eq!(seconds(b"1.5"), Some(1.5));
        assert_eq!(seconds(b"2m"), Some(120.0));
        for text in ["", "x", "-1", "inf", "1x"] {
            assert_eq!(seconds(text.as_bytes()), None, "{text}");
        }
    }
}
