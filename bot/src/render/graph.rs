//! The tree of an agent's states, newest first, drawn as `git log --graph` does.

use std::collections::HashMap;

use mayfly_domain::SnapshotId;
use mayfly_orchestrator::view::{GraphView, MoveView, NodeView, TickView};

use super::{one_line, tick::outcome, time};
use crate::screen::Screen;

/// A state; none is the image's own files.
type At = Option<SnapshotId>;

pub(crate) fn graph(view: &GraphView, screen: Screen) -> String {
    let mut lanes = Lanes::default();
    let mut text = String::new();
    let mut put = |drawn: String, told: String| {
        text.push_str(format!("{drawn} {told}").trim_end());
        text.push('\n');
    };
    for node in &view.nodes {
        let mark = match (node.state, node.kept) {
            (None, _) => 'x',
            (Some(_), false) => '.',
            (Some(_), true) => '*',
        };
        let own = node.state.map(Some);
        put(lanes.node(own, mark, node.parent), told(view, node, screen));
        lanes.join(node.parent, |drawn| put(drawn, String::new()));
    }
    let root = format!("the image's own files{}", marks(view, None, screen));
    put(lanes.node(Some(None), 'o', None), root);
    text
}

/// What each column waits for.
#[derive(Default)]
struct Lanes {
    columns: Vec<Option<At>>,
}

impl Lanes {
    /// Brings all columns that wait for `at` into the first of them.
    fn join(&mut self, at: At, mut put: impl FnMut(String)) {
        let waits = |column: &Option<At>| *column == Some(at);
        let Some(first) = self.columns.iter().position(waits) else {
            return;
        };
        while let Some(last) = self
            .columns
            .iter()
            .rposition(waits)
            .filter(|last| *last > first)
        {
            let mut row: Vec<char> = self.row('|').chars().collect();
            for place in &mut row[2 * first + 1..2 * last - 1] {
                if *place == ' ' {
                    *place = '_';
                }
            }
            row[2 * last - 1] = '/';
            row[2 * last] = ' ';
            put(row.into_iter().collect::<String>().trim_end().to_owned());
            self.columns[last] = None;
            self.shrink();
        }
    }

    /// Draws a node in its column, which waits for the node's parent from then on.
    fn node(&mut self, at: Option<At>, mark: char, parent: At) -> String {
        let waiting = at.and_then(|at| self.columns.iter().position(|c| *c == Some(at)));
        let column = waiting
            .or_else(|| self.columns.iter().position(Option::is_none))
            .unwrap_or_else(|| {
                self.columns.push(None);
                self.columns.len() - 1
            });
        self.columns[column] = Some(parent);
        let mut row: Vec<char> = self.row('|').chars().collect();
        row[2 * column] = mark;
        row.into_iter().collect()
    }

    fn row(&self, passing: char) -> String {
        let place = |column: &Option<At>| match column {
            Some(_) => format!("{passing} "),
            None => "  ".to_owned(),
        };
        let row: String = self.columns.iter().map(place).collect();
        row[..row.len().saturating_sub(1)].to_owned()
    }

    fn shrink(&mut self) {
        while self.columns.last().is_some_and(Option::is_none) {
            self.columns.pop();
        }
    }
}

fn told(view: &GraphView, node: &NodeView, screen: Screen) -> String {
    let marks = match node.state {
        Some(state) => marks(view, Some(state), screen),
        None => String::new(),
    };
    let gone = match (node.state, node.kept) {
        (Some(_), false) => screen.dim(" (not kept any more)"),
        _ => String::new(),
    };
    match &node.tick {
        Some(tick) => format!("{}{marks}{gone} {}", name(view, tick, screen), line(tick)),
        None => format!("a state of a removed agent{marks}{gone}"),
    }
}

fn name(view: &GraphView, tick: &TickView, screen: Screen) -> String {
    let short = screen.bold(&tick.id.short());
    match tick.agent == view.agent {
        true => short,
        false => format!("{short} of {}", tick.agent.short()),
    }
}

fn line(tick: &TickView) -> String {
    let title = one_line(&tick.title, 60);
    format!("{} {}: {title}", time(tick.started_at), outcome(tick))
}

/// Where the head is, was left by a rollback, and where forks begin.
fn marks(view: &GraphView, at: At, screen: Screen) -> String {
    let mut marks = Vec::new();
    if view.head == at {
        marks.push(screen.green("head"));
    }
    let mut left: HashMap<At, i64> = HashMap::new();
    let own = |moved: &&MoveView| moved.agent == view.agent && moved.reason == "rollback";
    for moved in view.moves.iter().filter(own) {
        left.insert(moved.from, moved.at);
    }
    let passed = view
        .nodes
        .iter()
        .any(|node| node.state == at && node.tick.as_ref().is_some_and(|tick| tick.in_head));
    if let Some(at) = left.get(&at).filter(|_| view.head != at && !passed) {
        marks.push(screen.yellow(&format!("left {}", time(*at))));
    }
    for fork in view.moves.iter().filter(|moved| moved.reason == "fork") {
        if fork.to == at {
            marks.push(match fork.agent == view.agent {
                true => "forked here".to_owned(),
                false => format!("fork {}", fork.agent.short()),
            });
        }
    }
    match marks.is_empty() {
        true => String::new(),
        false => format!(" ({})", marks.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_that_ends_far_away_crosses_the_others() {
        let ids = [(); 4].map(|()| SnapshotId::new());
        let [a, b, c, root] = ids.map(Some);
        let mut lanes = Lanes::default();
        let mut drawn = Vec::new();
        for (own, parent) in [(a, root), (b, c), (None, root), (c, root), (root, None)] {
            drawn.push(lanes.node(own.map(Some), '*', parent));
            lanes.join(parent, |row| drawn.push(row));
        }
        assert_eq!(drawn, ["*", "| *", "| | *", "|_|/", "| *", "|/", "*"]);
    }
}
