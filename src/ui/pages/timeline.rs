//! Time line of a session: the life of its token, what happened in the last hour, and what comes next. An SVG image with an
//! axis, and a legend with the times.

use std::time::{Duration, SystemTime};

use keyward_telemetry::wording::format_count;
use maud::{Markup, html};

use super::times::{clock, hour_and_minute, relative};

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

/// Width of the line, in parts of a thousand.
const WIDTH: u64 = 1000;

/// Distances between ticks, in seconds.
const STEPS: [u64; 8] = [15, 30, 60, 120, 300, 600, 900, 1800];

/// Most ticks: more would overlap on a phone.
const MOST_TICKS: u64 = 4;

/// Height of the line in the image, in pixels. Marks are drawn there.
const LINE: u64 = 34;

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

    /// Returns the times of the ticks, which are round, with their labels.
    fn ticks(&self) -> Vec<(SystemTime, String)> {
        let (start, end) = self.span();
        let seconds = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let (first, last) = (seconds(start), seconds(end));
        let fits = |step: &u64| last.saturating_sub(first) / step <= MOST_TICKS;
        let step = STEPS.into_iter().find(fits).unwrap_or(3600);
        let format = if step < 60 { clock } else { hour_and_minute };
        let at = |count: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(count * step);
        (first.div_ceil(step)..=last / step).map(|count| (at(count), format(at(count)))).collect()
    }

    /// Marks that are drawn: those of the last hour.
    fn recent_marks(&self) -> impl Iterator<Item = &TimelineMark> {
        self.marks.iter().filter(|mark| self.now.duration_since(mark.at).unwrap_or_default() <= PAST)
    }

    /// Draws the line with its legend. The label says in words what it shows.
    pub(super) fn draw(&self) -> Markup {
        let now = self.position(self.now);
        let start = self.obtained.map_or(now, |at| self.position(at));
        let life = self.expires.map(|at| self.position(at)).filter(|end| *end > now);
        // Positions are shares of the width and sizes are pixels, so that nothing is distorted on a narrow screen.
        html! {
            div.timeline {
                svg width="100%" height="80" role="img" aria-label=(self.describe()) {
                    @for (at, label) in self.ticks() {
                        @let x = percent(self.position(at));
                        line.tick x1=(x) y1="18" x2=(x) y2="56" {}
                        text x=(x) y="73" text-anchor="middle" { (label) }
                    }
                    line.axis x1="0%" y1=(LINE) x2="100%" y2=(LINE) {}
                    @if let Some(end) = life {
                        rect.life x=(percent(start)) y=(LINE - 7) width=(percent(end.saturating_sub(start))) height="14" rx="4" {}
                    }
                    line.now x1=(percent(now)) y1="16" x2=(percent(now)) y2="56" {}
                    text.now x=(percent(now)) y="11" text-anchor="middle" { "now" }
                    @for mark in self.recent_marks() {
                        svg.mark-at x=(percent(self.position(mark.at))) y=(LINE) overflow="visible" {
                            title { (mark.label) ", " (clock(mark.at)) ", " (relative(mark.at, self.now)) }
                            @if mark.failed {
                                circle.failed r="6" {}
                                path.cross d="M-2.5-2.5 2.5 2.5M2.5-2.5-2.5 2.5" {}
                            } @else {
                                circle.done r="5" {}
                            }
                        }
                    }
                    @if let Some((at, name)) = &self.next {
                        circle.next cx=(percent(self.position(*at))) cy=(LINE) r="5.5" {
                            title { (name) " at " (clock(*at)) ", " (relative(*at, self.now)) }
                        }
                    }
                }
                (self.legend())
            }
        }
    }

    /// Explains each sign that is drawn, with its times.
    fn legend(&self) -> Markup {
        let failures = self.recent_marks().filter(|mark| mark.failed).count() as u64;
        let others = self.recent_marks().count() as u64 - failures;
        let life = self.expires.filter(|at| *at > self.now);
        html! {
            ul.legend {
                @if let Some(expires) = life {
                    li {
                        span.sign.life {}
                        "token " @if let Some(obtained) = self.obtained { "from " (clock(obtained)) " " }
                        "until " (clock(expires)) ", ends " (relative(expires, self.now))
                    }
                }
                @if let Some((at, name)) = &self.next {
                    li { span.sign.next {} (name) " at " (clock(*at)) ", " (relative(*at, self.now)) }
                }
                @if failures > 0 { li { span.sign.failed { "×" } (format_count(failures, "problem")) " in the last hour" } }
                @if others > 0 { li { span.sign.done {} (format_count(others, "other event")) } }
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

/// Formats a position as a share of the width, such as `12.5%`.
fn percent(position: u64) -> String {
    format!("{}.{}%", position / 10, position % 10)
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

    fn noon() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_hours(36)
    }

    #[test]
    fn times_stand_in_their_order_within_the_drawn_span() {
        let line = timeline(noon());
        assert_eq!(line.position(noon()), WIDTH / 2);
        assert_eq!(line.position(noon() - Duration::from_mins(5)), WIDTH / 4);
        assert_eq!(line.position(noon() + Duration::from_mins(5)), WIDTH * 3 / 4);
        assert_eq!((line.position(noon() - PAST), line.position(noon() + FUTURE)), (0, WIDTH));
    }

    #[test]
    fn the_axis_has_few_round_times() {
        let labels = |line: &Timeline| line.ticks().into_iter().map(|(_, label)| label).collect::<Vec<_>>();
        assert_eq!(labels(&timeline(noon())), ["11:50", "11:55", "12:00", "12:05", "12:10"]);
        let short = Timeline { obtained: None, expires: None, next: None, marks: Vec::new(), now: noon() };
        assert_eq!(labels(&short), ["11:59:00", "11:59:30", "12:00:00", "12:00:30", "12:01:00"]);
        for seconds in (0..7200).step_by(37) {
            let now = noon() + Duration::from_secs(seconds / 3);
            let line = Timeline { expires: Some(now + Duration::from_secs(seconds)), now, ..timeline(noon()) };
            let count = line.ticks().len();
            assert!((1..=5).contains(&count), "{seconds}: {count}");
        }
    }

    #[test]
    fn the_legend_has_the_times_and_the_label_says_what_the_line_shows() {
        let drawn = timeline(noon()).draw().into_string();
        for part in [
            "token from 11:55:00 until 12:10:00, ends in 10 min",
            "renews at 12:05:00, in 5 min",
            "1 problem in the last hour",
            "1 other event",
            r#"class="life" x="25.0%" y="27" width="75.0%""#,
            r#"<text x="50.0%" y="73" text-anchor="middle">12:00</text>"#,
        ] {
            assert!(drawn.contains(part), "{part} is not in {drawn}");
        }
        let described = timeline(noon()).describe();
        assert_eq!(described, "the token ends in 10 min, renews in 5 min; failures in the last hour: 1");
        let ended = Timeline {
            obtained: None,
            expires: Some(noon() - Duration::from_secs(90)),
            next: None,
            marks: Vec::new(),
            now: noon(),
        };
        assert_eq!(ended.describe(), "the token ended 90 s ago; failures in the last hour: 0");
        assert!(!ended.draw().into_string().contains("class=\"life\""));
    }
}
