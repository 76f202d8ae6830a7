//! A chat platform in memory: for what is decided above every platform.

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use mayfly_domain::{
    Event, Inbox, Incoming, Link, PostId, Pressed, RemoteFile, ThreadKey,
    chat::{Body, Button, CallError, Content, FileOut, NewPost, Platform, Rendered, Sign, Staged},
};
use tokio::{io::AsyncReadExt as _, sync::Notify};

/// Its name.
pub const NAME: &str = "chat";

/// How one call goes wrong.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It does nothing and never returns.
    Hangs,
    /// It is done and never returns.
    Done,
    /// It does nothing and fails.
    Fails(CallError),
    /// It is done and fails.
    DoneFails(CallError),
    /// It is done only after this time; the caller has long gone.
    Late(Duration),
    /// It panics.
    Panics,
}

/// A post as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Its thread's last part.
    pub thread: String,
    /// The platform's id.
    pub id: String,
    /// What it says now.
    pub text: String,
    /// What it said before.
    pub before: Vec<String>,
    /// Its buttons.
    pub buttons: Vec<Button>,
    /// It is gone.
    pub removed: bool,
}

#[derive(Debug, Default)]
struct State {
    posts: Vec<Shown>,
    /// Ids by token, as a platform with idempotent creates keeps them.
    tokens: HashMap<String, String>,
    faults: HashMap<(String, String), VecDeque<Fault>>,
    writing: HashMap<String, u32>,
    most_at_once: usize,
    two_writers: bool,
    calls: Vec<(String, Instant)>,
    /// Calls that are done after their callers have gone.
    late: usize,
    signs: Vec<(String, Sign)>,
    files: HashMap<String, Vec<u8>>,
    /// How ids of files begin that are not given.
    never: Option<String>,
    answers: Vec<String>,
    events: VecDeque<Incoming>,
    next: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Chat {
    patience: Duration,
    /// Whether a second create with one token makes no second post.
    idempotent: bool,
    /// Characters that one post holds.
    room: usize,
    state: Arc<Mutex<State>>,
    news: Notify,
}

/// Counts whoever writes to a thread, also where the call is dropped.
struct Writing<'a>(&'a Chat, String);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        *self.0.state().writing.entry(self.1.clone()).or_default() -= 1;
    }
}

impl Chat {
    /// A platform that keeps tokens.
    pub fn new(patience: Duration) -> Arc<Chat> {
        Chat::made(patience, true, 2000)
    }

    /// A platform that makes a post whenever it is asked to.
    pub fn forgetful(patience: Duration) -> Arc<Chat> {
        Chat::made(patience, false, 2000)
    }

    /// A platform whose posts hold only so many characters.
    pub fn narrow(room: usize) -> Arc<Chat> {
        Chat::made(Duration::from_secs(600), true, room)
    }

    fn made(patience: Duration, idempotent: bool, room: usize) -> Arc<Chat> {
        Arc::new(Chat {
            patience,
            idempotent,
            room,
            state: Arc::default(),
            news: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next calls of this kind for this thread (`post`, `edit`, `remove`, `file`, `open`) go wrong.
    pub fn fault(&self, call: &str, thread: &str, faults: impl IntoIterator<Item = Fault>) {
        let key = (call.to_owned(), thread.to_owned());
        self.state().faults.entry(key).or_default().extend(faults);
    }

    /// Posts that stand in a thread, in their order.
    pub fn shown(&self, thread: &str) -> Vec<Shown> {
        let posts = self.state().posts.clone();
        let here = |post: &Shown| post.thread == thread && !post.removed;
        posts.into_iter().filter(here).collect()
    }

    /// What they say, without those that are empty still.
    pub fn texts(&self, thread: &str) -> Vec<String> {
        let shown = self.shown(thread).into_iter().map(|post| post.text);
        shown.filter(|text| text != "…").collect()
    }

    /// What the next conversation will be called that is opened here.
    pub fn next_opened(&self) -> String {
        format!("t{}", self.state().next + 1)
    }

    /// Somebody removes a post of ours.
    pub fn remove_by_hand(&self, id: &str) {
        let mut state = self.state();
        let post = state.posts.iter_mut().find(|post| post.id == id);
        post.expect("it stands").removed = true;
    }

    /// Something happens there.
    pub fn happens(&self, event: Event) {
        let raw = serde_json::to_vec(&event).expect("events are plain");
        self.state().events.push_back(Incoming {
            platform: NAME.to_owned(),
            raw,
            event: Ok(event),
        });
        self.news.notify_one();
    }

    /// A file that can be fetched by this id.
    pub fn keep_file(&self, id: &str, content: &[u8]) {
        self.state().files.insert(id.to_owned(), content.to_vec());
    }

    /// Files whose ids begin so do not come, until [`Chat::give_all`].
    pub fn never_give(&self, begins: &str) {
        self.state().never = Some(begins.to_owned());
    }

    /// All files come.
    pub fn give_all(&self) {
        self.state().never = None;
    }

    /// Content of a file that was sent.
    pub fn sent_file(&self, name: &str) -> Option<Vec<u8>> {
        self.state().files.get(&format!("sent/{name}")).cloned()
    }

    /// Signs on posts of others, in their order.
    pub fn signs(&self) -> Vec<(String, Sign)> {
        self.state().signs.clone()
    }

    /// What those were told who pressed something.
    pub fn answers(&self) -> Vec<String> {
        self.state().answers.clone()
    }

    /// Most threads that were written to at once, and whether one ever had two writers.
    pub fn writers(&self) -> (usize, bool) {
        let state = self.state();
        (state.most_at_once, state.two_writers)
    }

    /// When calls of this kind came.
    pub fn calls(&self, kind: &str) -> Vec<Instant> {
        let state = self.state();
        let of_kind = state.calls.iter().filter(|(name, _)| name == kind);
        of_kind.map(|(_, at)| *at).collect()
    }

    /// Calls that are still to be done, see [`Fault::Late`].
    pub fn late(&self) -> usize {
        self.state().late
    }

    /// One call: counts it, takes its fault, does it.
    async fn act<T: Send + 'static>(
        &self,
        kind: &str,
        thread: &str,
        act: impl FnOnce(&mut State) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let fault = {
            let mut state = self.state();
            state.calls.push((kind.to_owned(), Instant::now()));
            let writers = state.writing.entry(thread.to_owned()).or_default();
            *writers += 1;
            let second = *writers > 1;
            state.two_writers |= second;
            let now = state.writing.values().filter(|count| **count > 0).count();
            state.most_at_once = state.most_at_once.max(now);
            let key = (kind.to_owned(), thread.to_owned());
            state.faults.get_mut(&key).and_then(VecDeque::pop_front)
        };
        let _writing = Writing(self, thread.to_owned());
        match fault {
            Some(Fault::Hangs) => std::future::pending().await,
            Some(Fault::Fails(error)) => Err(error),
            Some(Fault::Panics) => panic!("an adapter's fault"),
            Some(Fault::Done) => {
                let _ = act(&mut self.state());
                std::future::pending().await
            }
            Some(Fault::DoneFails(error)) => {
                let _ = act(&mut self.state());
                Err(error)
            }
            Some(Fault::Late(after)) => {
                let state = self.state.clone();
                self.state().late += 1;
                std::thread::spawn(move || {
                    std::thread::sleep(after);
                    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                    let _ = act(&mut state);
                    state.late -= 1;
                });
                std::future::pending().await
            }
            // Others get the chance to come between.
            None => {
                tokio::time::sleep(Duration::from_millis(5)).await;
                act(&mut self.state())
            }
        }
    }
}

fn made(state: &mut State, post: &NewPost, keep: bool) -> String {
    if let Some(id) = state.tokens.get(&post.token).filter(|_| keep) {
        return id.clone();
    }
    let (text, buttons) = read(&post.content);
    appended(state, &post.thread, &post.token, text, buttons)
}

fn appended(
    state: &mut State,
    thread: &ThreadKey,
    token: &str,
    text: String,
    buttons: Vec<Button>,
) -> String {
    state.next += 1;
    let id = format!("p{}", state.next);
    state.tokens.insert(token.to_owned(), id.clone());
    state.posts.push(Shown {
        thread: thread.thread.clone(),
        id: id.clone(),
        text,
        before: Vec::new(),
        buttons,
        removed: false,
    });
    id
}

fn read(content: &Content) -> (String, Vec<Button>) {
    serde_json::from_str(&content.0).expect("a content of this platform")
}

fn written(text: &str, buttons: &[Button]) -> Content {
    Content(serde_json::to_string(&(text, buttons)).expect("plain data"))
}

#[async_trait]
impl Platform for Chat {
    fn name(&self) -> &'static str {
        NAME
    }

    fn patience(&self) -> Duration {
        self.patience
    }

    fn edit_pause(&self, _: &ThreadKey) -> Duration {
        Duration::from_millis(200)
    }

    fn max_file(&self) -> u64 {
        1 << 20
    }

    fn render(&self, markdown: &str) -> Rendered {
        let text: Vec<char> = markdown.trim().chars().collect();
        let parts = text.chunks(self.room).map(|piece| piece.iter().collect());
        let mut parts: Vec<String> = parts.collect();
        let whole = (parts.len() > 3).then(|| {
            parts.truncate(1);
            ("reply.md".to_owned(), markdown.to_owned())
        });
        Rendered {
            parts: parts.iter().map(|text| written(text, &[])).collect(),
            whole,
        }
    }

    fn line(&self, text: &str, buttons: &[Button]) -> Content {
        written(text, buttons)
    }

    async fn listen(&self, inbox: &dyn Inbox) -> Result<Infallible, String> {
        inbox.link(NAME, Link::Up);
        loop {
            let news = self.news.notified();
            let next = self.state().events.front().cloned();
            match next {
                Some(event) => {
                    let taken = inbox.take(vec![event], None).await;
                    taken.map_err(|error| error.to_string())?;
                    self.state().events.pop_front();
                }
                None => news.await,
            }
        }
    }

    async fn post(&self, post: &NewPost) -> Result<String, CallError> {
        let (new, keep) = (post.clone(), self.idempotent);
        let thread = post.thread.thread.clone();
        self.act("post", &thread, move |state| Ok(made(state, &new, keep)))
            .await
    }

    async fn edit(
        &self,
        thread: &ThreadKey,
        post: &str,
        content: &Content,
    ) -> Result<(), CallError> {
        let (id, content) = (post.to_owned(), content.clone());
        let edit = move |state: &mut State| {
            let found = state.posts.iter_mut().find(|shown| shown.id == id);
            let Some(shown) = found.filter(|shown| !shown.removed) else {
                return Err(CallError::Gone(id));
            };
            let (text, buttons) = read(&content);
            let before = std::mem::replace(&mut shown.text, text);
            shown.before.push(before);
            shown.buttons = buttons;
            Ok(())
        };
        self.act("edit", &thread.thread, edit).await
    }

    async fn remove(&self, thread: &ThreadKey, post: &str) -> Result<(), CallError> {
        let id = post.to_owned();
        let remove = move |state: &mut State| {
            for shown in state.posts.iter_mut().filter(|shown| shown.id == id) {
                shown.removed = true;
            }
            Ok(())
        };
        self.act("remove", &thread.thread, remove).await
    }

    async fn stage_file(&self, _: &FileOut, body: Body) -> Result<Staged, CallError> {
        Ok(Staged::Body(body))
    }

    async fn post_file(&self, file: &FileOut, staged: Staged) -> Result<String, CallError> {
        if file.unknown_since.is_some() {
            return Err(CallError::Unknown("nobody can tell".to_owned()));
        }
        let Staged::Body(mut body) = staged else {
            return Err(CallError::Refused("nothing was staged".to_owned()));
        };
        let mut content = Vec::new();
        let read = body.read_to_end(&mut content).await;
        read.map_err(|error| CallError::NotDone(error.to_string()))?;
        let out = file.clone();
        let send = move |state: &mut State| {
            state.files.insert(format!("sent/{}", out.name), content);
            let text = format!("[{}]", out.name);
            Ok(appended(state, &out.thread, &out.token, text, Vec::new()))
        };
        self.act("file", &file.thread.thread, send).await
    }

    async fn busy(&self, _: &ThreadKey) -> Result<Duration, CallError> {
        let call = ("busy".to_owned(), Instant::now());
        self.state().calls.push(call);
        Ok(Duration::from_secs(5))
    }

    async fn sign(&self, post: &PostId, sign: Sign) -> Result<(), CallError> {
        self.state().signs.push((post.id.clone(), sign));
        Ok(())
    }

    async fn answer(&self, _: &Pressed, text: &str) -> Result<(), CallError> {
        self.state().answers.push(text.to_owned());
        Ok(())
    }

    async fn open(
        &self,
        beside: &ThreadKey,
        title: &str,
        token: &str,
        _unknown_since: Option<i64>,
    ) -> Result<(ThreadKey, String), CallError> {
        let (mut key, title, token) = (beside.clone(), title.to_owned(), token.to_owned());
        let keep = self.idempotent;
        let open = move |state: &mut State| {
            let id = match state.tokens.get(&token).filter(|_| keep) {
                Some(id) => id.clone(),
                None => {
                    key.thread = format!("t{}", state.next + 1);
                    appended(state, &key, &token, title, Vec::new())
                }
            };
            key.thread = format!("t{}", &id[1..]);
            let link = format!("chat://{}", key.thread);
            Ok((key, link))
        };
        self.act("open", &beside.thread, open).await
    }

    fn finds_opened(&self) -> bool {
        self.idempotent
    }

    async fn fetch(&self, file: &RemoteFile) -> Result<Body, CallError> {
        let kept_back = |state: &State| {
            let never = state.never.as_deref();
            never.is_some_and(|never| file.id.starts_with(never))
        };
        while kept_back(&self.state()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let content = self.state().files.get(&file.id).cloned();
        let gone = || CallError::Gone(file.id.clone());
        Ok(Box::pin(std::io::Cursor::new(content.ok_or_else(gone)?)))
    }
}
