use serde::{Deserialize, Serialize};

/// One page of a list that may be long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    /// In the list's order.
    pub items: Vec<T>,
    /// The next page's `after`; none on the last page.
    pub next: Option<String>,
}

/// Which page is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<Id> {
    /// The last item of the page before; it need not exist any more.
    pub after: Option<Id>,
    /// Longest page.
    pub most: u32,
}

impl<T> Page<T> {
    /// Of one item more than the page may have, where there are as many.
    pub(crate) fn cut(mut items: Vec<T>, most: u32, id: impl Fn(&T) -> String) -> Page<T> {
        let most = most as usize;
        let more = items.len() > most;
        items.truncate(most);
        let next = items.last().filter(|_| more).map(id);
        Page { items, next }
    }

    /// The items as `show` shows them.
    pub(crate) fn map<U>(self, show: impl FnMut(T) -> U) -> Page<U> {
        Page {
            items: self.items.into_iter().map(show).collect(),
            next: self.next,
        }
    }
}
