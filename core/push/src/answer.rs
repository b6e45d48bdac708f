//! What a server's answer means for the window that was sent.

use crate::messages::{ExportResponse, RetryInfo, Status};
use crate::target::Protocol;
use http::{HeaderMap, StatusCode};
use prost::Message;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Characters of a server's own words that are repeated.
const MAX_MESSAGE: usize = 200;

/// An answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: HeaderMap,
}

/// What becomes of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The server has it. It may have said that it did not take all.
    Delivered(Option<String>),
    /// It is to be sent again, after that time if the server said when.
    Retry(String, Option<Duration>),
    /// It is more than the server takes at once.
    TooLarge(String),
    /// The server will never take it.
    Refused(String),
    /// The server takes nothing at that address, or from that sender.
    NotAllowed(String),
}

impl Answer {
    /// Judges the answer.
    pub(crate) fn verdict(&self, protocol: Protocol) -> Verdict {
        if protocol.is_grpc() && self.status == StatusCode::OK {
            return self.verdict_of_grpc(protocol);
        }
        let message = self.message();
        let why = match message.is_empty() {
            true => format!("{}", self.status),
            false => format!("{}: {message}", self.status),
        };
        match self.status.as_u16() {
            200..=299 => Verdict::Delivered(self.partial_success(protocol)),
            413 => Verdict::TooLarge(why),
            408 | 429 | 502..=504 => Verdict::Retry(why, self.retry_after(SystemTime::now())),
            // OpenTelemetry says that it will not be better the next time; the others say nothing.
            500 if !protocol.is_otlp() => Verdict::Retry(why, self.retry_after(SystemTime::now())),
            300..=399 | 401 | 403..=405 | 407 => Verdict::NotAllowed(why),
            _ => Verdict::Refused(why),
        }
    }

    /// By the status of gRPC, which is among the trailers, or among the headers of an answer without a body.
    fn verdict_of_grpc(&self, protocol: Protocol) -> Verdict {
        let field = |name: &str| self.trailers.get(name).or_else(|| self.headers.get(name))?.to_str().ok();
        let Some(status) = field("grpc-status").and_then(|status| status.parse::<u8>().ok()) else {
            return Verdict::Retry("the answer has no status of gRPC".to_owned(), None);
        };
        let message = shortened(field("grpc-message").unwrap_or_default());
        let why = format!("gRPC status {status}: {message}");
        let after = field("grpc-status-details-bin").and_then(retry_delay);
        match status {
            0 => Verdict::Delivered(self.partial_success(protocol)),
            8 if message.contains("larger than max") => Verdict::TooLarge(why),
            // Of OpenTelemetry this means to try again only where it says when.
            8 if protocol.is_otlp() && after.is_none() => Verdict::Refused(why),
            1 | 4 | 8 | 10 | 11 | 14 | 15 => Verdict::Retry(why, after),
            5 | 7 | 12 | 16 => Verdict::NotAllowed(why),
            _ => Verdict::Refused(why),
        }
    }

    /// What OpenTelemetry's answer says that the server has not taken.
    fn partial_success(&self, protocol: Protocol) -> Option<String> {
        if !protocol.is_otlp() {
            return None;
        }
        let message = if protocol.is_grpc() { self.body.get(5..)? } else { &*self.body };
        let partial = ExportResponse::decode(message).ok()?.partial_success?;
        let said = shortened(&partial.error_message);
        (partial.rejected_profiles > 0).then(|| format!("{} profiles rejected: {said}", partial.rejected_profiles))
    }

    /// How long to wait before the next attempt: seconds, or a date.
    fn retry_after(&self, now: SystemTime) -> Option<Duration> {
        let text = self.headers.get("retry-after")?.to_str().ok()?.trim();
        if let Ok(seconds) = text.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let now = now.duration_since(UNIX_EPOCH).ok()?.as_secs();
        Some(Duration::from_secs(unix_time(text)?.saturating_sub(now)))
    }

    /// The server's own words, as far as they are text.
    fn message(&self) -> String {
        shortened(&String::from_utf8_lossy(&self.body))
    }
}

fn shortened(text: &str) -> String {
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(MAX_MESSAGE).collect::<String>().trim().to_owned()
}

/// The delay in the details of a gRPC status, which are a `google.rpc.Status` in Base64.
fn retry_delay(details: &str) -> Option<Duration> {
    let details = base64_simd::STANDARD_NO_PAD.decode_to_vec(details.trim_end_matches('=')).ok()?;
    let status = Status::decode(&*details).ok()?;
    let info = status.details.iter().find(|detail| detail.type_url.ends_with("google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(&*info.value).ok()?.retry_delay?;
    Some(Duration::new(delay.seconds.try_into().ok()?, delay.nanos.try_into().ok()?))
}

/// Seconds since 1970 of a date as HTTP writes it: `Sun, 29 Nov 2026 19:23:04 GMT`.
fn unix_time(date: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let fields: Vec<&str> = date.split([' ', ':']).collect();
    let [_, day, month, year, hour, minute, second, "GMT"] = fields[..] else { return None };
    let month = 1 + MONTHS.iter().position(|name| *name == month)? as u64;
    let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number < 10_000);
    let [day, year, hour, minute, second] =
        [number(day)?, number(year)?, number(hour)?, number(minute)?, number(second)?];
    // Years that begin in March have their leap day last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    // Days from the first of March of the year 0, counted from 1, to 1970.
    const BEFORE_1970: u64 = 719_469;
    Some((days.checked_sub(BEFORE_1970)? * 24 + hour) * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Any, Duration as Delay, PartialSuccess};

    fn http(status: u16, headers: &[(&'static str, &str)], body: &str) -> Answer {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let status = StatusCode::from_u16(status).unwrap();
        Answer { status, headers, body: body.as_bytes().to_vec(), trailers: HeaderMap::new() }
    }

    fn grpc(status: &str, message: &str, details: Option<String>) -> Answer {
        let mut answer = Answer::default();
        answer.trailers.insert("grpc-status", status.parse().unwrap());
        answer.trailers.insert("grpc-message", message.parse().unwrap());
        details.into_iter().for_each(|details| {
            answer.trailers.insert("grpc-status-details-bin", details.parse().unwrap());
        });
        answer
    }

    #[test]
    fn what_may_be_better_the_next_time_is_sent_again() {
        let verdict = |status| http(status, &[("retry-after", "7")], "why\n").verdict(Protocol::Pyroscope);
        for status in [408, 429, 500, 502, 503, 504] {
            let Verdict::Retry(why, after) = verdict(status) else { panic!("{status}") };
            assert!(why.contains("why") && after == Some(Duration::from_secs(7)), "{why}");
        }
        for status in [301, 401, 403, 404] {
            assert!(matches!(verdict(status), Verdict::NotAllowed(_)), "{status}");
        }
        for status in [400, 422, 501] {
            assert!(matches!(verdict(status), Verdict::Refused(_)), "{status}");
        }
        assert!(matches!(verdict(413), Verdict::TooLarge(_)));
        assert_eq!(verdict(202), Verdict::Delivered(None));
        assert!(matches!(http(500, &[], "").verdict(Protocol::OtlpHttp), Verdict::Refused(_)));
    }

    #[test]
    fn dates_say_when_as_well() {
        assert_eq!(unix_time("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(unix_time("Sun, 29 Nov 2026 19:23:04 GMT"), Some(1_795_980_184));
        assert_eq!(unix_time("Tue, 29 Feb 2028 00:00:00 GMT"), Some(1_835_395_200));
        assert_eq!(unix_time("tomorrow"), None);
        let answer = http(503, &[("retry-after", "Sun, 29 Nov 2026 19:23:04 GMT")], "");
        let now = UNIX_EPOCH + Duration::from_secs(1_795_980_180);
        assert_eq!(answer.retry_after(now), Some(Duration::from_secs(4)));
        assert_eq!(answer.retry_after(now + Duration::from_secs(60)), Some(Duration::ZERO));
    }

    #[test]
    fn grpc_says_when_in_its_details() {
        let info = RetryInfo { retry_delay: Some(Delay { seconds: 3, nanos: 500_000_000 }) };
        let type_url = "type.googleapis.com/google.rpc.RetryInfo".to_owned();
        let status = Status { details: vec![Any { type_url, value: info.encode_to_vec() }] };
        let details = base64_simd::STANDARD.encode_to_string(status.encode_to_vec());
        let after = Some(Duration::from_millis(3500));
        let verdict = |answer: Answer| answer.verdict(Protocol::OtlpGrpc);
        assert_eq!(verdict(grpc("8", "slow", Some(details))), Verdict::Retry("gRPC status 8: slow".into(), after));
        assert!(matches!(verdict(grpc("8", "slow", None)), Verdict::Refused(_)));
        assert!(matches!(grpc("8", "slow", None).verdict(Protocol::Parca), Verdict::Retry(_, None)));
        assert!(matches!(verdict(grpc("8", "received message larger than max (9 vs. 4)", None)), Verdict::TooLarge(_)));
        assert!(matches!(verdict(grpc("14", "", None)), Verdict::Retry(_, None)));
        assert!(matches!(verdict(grpc("16", "", None)), Verdict::NotAllowed(_)));
        assert!(matches!(verdict(grpc("3", "", None)), Verdict::Refused(_)));
        assert!(matches!(verdict(Answer::default()), Verdict::Retry(_, None)));
        assert_eq!(verdict(grpc("0", "", None)), Verdict::Delivered(None));
    }

    #[test]
    fn what_was_taken_in_part_is_said() {
        let partial = PartialSuccess { rejected_profiles: 2, error_message: "old\u{1b}".to_owned() };
        let body = ExportResponse { partial_success: Some(partial) }.encode_to_vec();
        let answer = Answer { body, ..Answer::default() };
        assert_eq!(answer.verdict(Protocol::OtlpHttp), Verdict::Delivered(Some("2 profiles rejected: old".to_owned())));
        assert_eq!(answer.verdict(Protocol::Pyroscope), Verdict::Delivered(None));
    }
}
