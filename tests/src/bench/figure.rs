//! The one form of every bench: a list of figures, as JSON and as a table.
//!
//! A measured figure is the median of its runs; its spread stands beside it as two figures of
//! their own, `<figure> p10` and `<figure> p90`. A goal is met or missed, and a miss comes with
//! its cause.

use std::{
    collections::BTreeMap,
    fmt::{self, Display, Write as _},
    fs, io,
    path::Path,
};

use serde::Serialize;

/// One line of a bench.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// What was measured.
    pub figure: String,
    /// How much.
    pub value: f64,
    /// Of what: `ms`, `MiB`, `x` for a ratio.
    pub unit: &'static str,
    /// The most it may be; none where there is no goal.
    pub goal: Option<f64>,
    /// Whether it is; none where there is no goal.
    pub met: Option<bool>,
    /// How many measurements it stands on.
    pub runs: usize,
}

/// Everything one bench found.
#[derive(Debug, Default)]
pub struct Report {
    figures: Vec<Figure>,
    causes: BTreeMap<String, String>,
}

impl Report {
    /// The median of samples with its spread; nothing where there is no sample.
    pub fn samples(&mut self, figure: &str, unit: &'static str, goal: Option<f64>, of: &[f64]) {
        let Some(median) = quantile(of, 0.5) else {
            return;
        };
        self.value(figure, unit, goal, median, of.len());
        for (name, share) in SPREAD {
            let value = quantile(of, share).expect("there is a median");
            self.value(&format!("{figure}{name}"), unit, None, value, of.len());
        }
    }

    /// A figure that was computed.
    pub fn value(
        &mut self,
        figure: &str,
        unit: &'static str,
        goal: Option<f64>,
        value: f64,
        runs: usize,
    ) {
        let value = (value * 1000.0).round() / 1000.0;
        self.figures.push(Figure {
            figure: figure.to_owned(),
            value,
            unit,
            goal,
            met: goal.map(|goal| value <= goal),
            runs,
        });
    }

    /// How many times one figure is another; nothing where one of them is missing.
    pub fn ratio(&mut self, name: &str, of: &str, to: &str, goal: Option<f64>) {
        let (Some(of), Some(to)) = (self.find(of), self.find(to)) else {
            return;
        };
        let (value, runs) = (of.value / to.value, of.runs.min(to.runs));
        self.value(name, "x", goal, value, runs);
    }

    /// In words, whether two figures differ by more than their own spread.
    pub fn overlap(&self, small: &str, large: &str) -> String {
        let spread = |of: &str| {
            let end = |share: &str| self.get(&format!("{of}{share}")).unwrap_or_default();
            (end(SPREAD[0].0), end(SPREAD[1].0))
        };
        let ((from, to), (large_from, large_to)) = (spread(small), spread(large));
        let meaning = match large_from <= to {
            true => "they overlap, so this is the machine's noise or too few rounds",
            false => "they do not overlap, so something reads the size of the state",
        };
        format!(
            "p10 to p90 is {from:.0} to {to:.0} ms ({small}) and {large_from:.0} to {large_to:.0} ms ({large}): {meaning}"
        )
    }

    /// Said below the table if the goal of this figure is missed.
    pub fn cause(&mut self, figure: &str, cause: impl Into<String>) {
        self.causes.insert(figure.to_owned(), cause.into());
    }

    /// What was found so far.
    pub fn get(&self, figure: &str) -> Option<f64> {
        self.find(figure).map(|found| found.value)
    }

    /// Writes the list.
    pub fn write_json(&self, path: &Path) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(&self.figures).expect("figures are plain");
        text.push('\n');
        fs::write(path, text)
    }

    fn find(&self, figure: &str) -> Option<&Figure> {
        self.figures.iter().find(|found| found.figure == figure)
    }
}

const SPREAD: [(&str, f64); 2] = [(" p10", 0.1), (" p90", 0.9)];

impl Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_spread = |name: &str| SPREAD.iter().any(|(end, _)| name.ends_with(end));
        let rows: Vec<[String; 7]> = self
            .figures
            .iter()
            .filter(|row| !is_spread(&row.figure))
            .map(|row| {
                let spread: Vec<String> = SPREAD
                    .iter()
                    .filter_map(|(end, _)| self.get(&format!("{}{end}", row.figure)))
                    .map(|value| format!("{value:.1}"))
                    .collect();
                let digits = if row.unit == "x" { 2 } else { 1 };
                [
                    row.figure.clone(),
                    format!("{:.digits$}", row.value),
                    row.unit.to_owned(),
                    spread.join(" - "),
                    row.goal
                        .map_or_else(String::new, |goal| format!("<= {goal}")),
                    match row.met {
                        None => String::new(),
                        Some(true) => "met".to_owned(),
                        Some(false) => "MISSED".to_owned(),
                    },
                    row.runs.to_string(),
                ]
            })
            .collect();
        let head = [
            "figure",
            "value",
            "unit",
            "p10 - p90",
            "goal",
            "met",
            "runs",
        ]
        .map(str::to_owned);
        let widths: Vec<usize> = (0..head.len())
            .map(|column| {
                let cells = rows
                    .iter()
                    .chain([&head])
                    .map(|row| row[column].chars().count());
                cells.max().unwrap_or(0)
            })
            .collect();
        for row in [&head].into_iter().chain(&rows) {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                match column {
                    1 | 6 => write!(line, "{cell:>width$}  ")?,
                    _ => write!(line, "{cell:<width$}  ")?,
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        for missed in self.figures.iter().filter(|row| row.met == Some(false)) {
            let cause = self.causes.get(&missed.figure);
            let cause = cause.map_or(
                "nothing was measured beside it that tells why",
                String::as_str,
            );
            writeln!(out, "\nMISSED {}: {cause}", missed.figure)?;
        }
        Ok(())
    }
}

/// Milliseconds by figure, in the order in which figures first come.
#[derive(Debug, Default)]
pub struct Laps(Vec<(String, Vec<f64>)>);

impl Laps {
    /// One more measurement.
    pub fn add(&mut self, figure: &str, ms: f64) {
        match self.0.iter_mut().find(|(name, _)| name == figure) {
            Some((_, laps)) => laps.push(ms),
            None => self.0.push((figure.to_owned(), vec![ms])),
        }
    }

    /// All of them, without goals.
    pub fn report(&self, report: &mut Report) {
        for (figure, laps) in &self.0 {
            report.samples(figure, "ms", None, laps);
        }
    }
}

/// The value below which this share of the samples lies, interpolated.
pub fn quantile(of: &[f64], share: f64) -> Option<f64> {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let place = share * last as f64;
    let (low, high) = (
        sorted[place.floor() as usize],
        sorted[place.ceil() as usize],
    );
    Some(low + (high - low) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_interpolated() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(quantile(&[1.0, 2.0], 0.5), Some(1.5));
        assert_eq!(quantile(&[1.0, 2.0], 1.0), Some(2.0));
    }

    #[test]
    fn a_miss_is_shown_with_its_cause_and_a_figure_has_exactly_the_agreed_keys() {
        let mut report = Report::default();
        report.samples("tick", "ms", Some(10.0), &[11.0, 12.0, 13.0]);
        report.value("rest", "MiB", None, 1.0, 1);
        report.cause("tick", "a slow disk");
        let shown = report.to_string();
        assert!(shown.contains("MISSED tick: a slow disk"), "{shown}");
        assert!(shown.contains("11.2 - 12.8"), "{shown}");
        let json = serde_json::to_value(&report.figures).unwrap();
        let keys: Vec<&String> = json[0].as_object().unwrap().keys().collect();
        assert_eq!(keys.len(), 6);
        for key in ["figure", "value", "unit", "goal", "met", "runs"] {
            assert!(json[0].get(key).is_some(), "{key}");
        }
        assert_eq!(json[0]["met"], false);
        assert!(json[3]["goal"].is_null() && json[3]["met"].is_null());
    }
}
