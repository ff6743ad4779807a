//! Time line of a session: the life of its token, what happened in the last hour, and what comes next. An SVG image.

use std::time::{Duration, SystemTime};

use maud::{Markup, html};

use super::times::relative;

/// A mark on the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TimelineMark {
    pub(super) at: SystemTime,
    /// The mark is a failure.
    pub(super) failed: bool,
    pub(super) label: String,
}

/// Times to draw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Timeline {
    pub(super) now: SystemTime,
    /// Start of the token's lease, if there is a token.
    pub(super) obtained: Option<SystemTime>,
    /// Expiry of the token, if there is one.
    pub(super) expires: Option<SystemTime>,
    /// Next step, with its name.
    pub(super) next: Option<(SystemTime, String)>,
    pub(super) marks: Vec<TimelineMark>,
}

/// Maximum of the past that is drawn.
const PAST: Duration = Duration::from_hours(1);

/// Maximum of the future that is drawn.
const FUTURE: Duration = Duration::from_hours(1);

/// Width of the image in its own units.
const WIDTH: u64 = 1000;

impl Timeline {
    /// Returns the drawn span: the past from the first mark or the token's lease on, the future to the expiry, each between a minute and an hour.
    fn span(&self) -> (SystemTime, SystemTime) {
        let minute = Duration::from_mins(1);
        let first = self.marks.iter().map(|mark| mark.at).chain(self.obtained).min();
        let past = first.and_then(|at| self.now.duration_since(at).ok()).unwrap_or_default().clamp(minute, PAST);
        let last = self.expires.max(self.next.as_ref().map(|(at, _)| *at));
        let future = last.and_then(|at| at.duration_since(self.now).ok()).unwrap_or_default().clamp(minute, FUTURE);
        (self.now - past, self.now + future)
    }

    /// Returns the place of a time on the line, from 0 to [`WIDTH`]; times beyond the ends are at the ends.
    fn position(&self, at: SystemTime) -> u64 {
        let (start, end) = self.span();
        let total = end.duration_since(start).unwrap_or_default().as_millis().max(1);
        let part = at.duration_since(start).unwrap_or_default().as_millis().min(total);
        u64::try_from(part * u128::from(WIDTH) / total).unwrap_or(WIDTH)
    }

    /// Draws the line. The label says in words what it shows.
    pub(super) fn draw(&self) -> Markup {
        let now = self.position(self.now);
        let start = self.obtained.map_or(now, |at| self.position(at));
        let life = self.expires.map(|at| self.position(at)).filter(|end| *end > now);
        html! {
            svg.timeline viewBox="-10 0 1020 44" preserveAspectRatio="none" role="img" aria-label=(self.describe()) {
                line.axis x1="0" y1="22" x2=(WIDTH) y2="22" {}
                @if let Some(end) = life { rect.life x=(start) y="14" width=(end.saturating_sub(start)) height="16" rx="3" {} }
                @for mark in self.marks.iter().filter(|mark| self.now.duration_since(mark.at).unwrap_or_default() <= PAST) {
                    circle class=(if mark.failed { "failed" } else { "done" }) cx=(self.position(mark.at)) cy="22" r="6" {
                        title { (mark.label) ", " (relative(mark.at, self.now)) }
                    }
                }
                @if let Some((at, name)) = &self.next {
                    circle.next cx=(self.position(*at)) cy="22" r="6" { title { (name) " " (relative(*at, self.now)) } }
                }
                line.now x1=(now) y1="4" x2=(now) y2="40" {}
            }
        }
    }

    fn describe(&self) -> String {
        let failures = self.marks.iter().filter(|mark| mark.failed).count();
        let life = match self.expires {
            Some(at) if at > self.now => format!("the token ends {}", relative(at, self.now)),
            Some(at) => format!("the token ended {}", relative(at, self.now)),
            None => "the token's expiry is unknown".to_owned(),
        };
        let next = self.next.as_ref().map(|(at, name)| format!(", {name} {}", relative(*at, self.now)));
        format!("{life}{}; failures in the last hour: {failures}", next.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(now: SystemTime) -> Timeline {
        let mark =
            |ago, failed| TimelineMark { at: now - Duration::from_secs(ago), failed, label: "a login".to_owned() };
        Timeline {
            now,
            obtained: Some(now - Duration::from_mins(5)),
            expires: Some(now + Duration::from_mins(10)),
            next: Some((now + Duration::from_mins(5), "renews".to_owned())),
            marks: vec![mark(600, true), mark(300, false)],
        }
    }

    #[test]
    fn times_stand_in_their_order_within_the_drawn_span() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_hours(24);
        let line = timeline(now);
        assert_eq!(line.position(now), WIDTH / 2);
        assert_eq!(line.position(now - Duration::from_mins(5)), WIDTH / 4);
        assert_eq!(line.position(now + Duration::from_mins(5)), WIDTH * 3 / 4);
        assert_eq!((line.position(now - PAST), line.position(now + FUTURE)), (0, WIDTH));
    }

    #[test]
    fn the_label_says_what_the_line_shows() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_hours(24);
        let described = timeline(now).describe();
        assert_eq!(described, "the token ends in 10 min, renews in 5 min; failures in the last hour: 1");
        let ended = Timeline {
            obtained: None,
            expires: Some(now - Duration::from_secs(90)),
            next: None,
            marks: Vec::new(),
            now,
        };
        assert_eq!(ended.describe(), "the token ended 90 s ago; failures in the last hour: 0");
        assert!(!ended.draw().into_string().contains("class=\"life\""));
        let life = timeline(now).draw().into_string();
        assert!(life.contains(r#"class="life" x="250" y="14" width="750""#), "{life}");
    }
}
