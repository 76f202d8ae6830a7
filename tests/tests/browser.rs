//! The page in a browser: what a person does, what is seen without a reload, and that nothing which
//! agents write is ever run.

use std::time::{Duration, Instant};

use mayfly_tests::{browser::Browser, server::Server};
use serde_json::{Value, json};

async fn signed_in(server: &Server) -> Browser {
    let link = server.json(&["page"])["link"].clone();
    let browser = Browser::start().await;
    browser.open(link.as_str().expect("a link")).await;
    let home = format!("http://{}/", server.address());
    assert_eq!(
        browser.address().await,
        home,
        "the key is gone from the address"
    );
    browser
}

async fn say(browser: &Browser, text: &str) {
    let said = "return document.querySelectorAll('.person').length";
    let before = browser.run(said).await;
    browser.write("#text", text).await;
    browser.press("#send").await;
    let sent = format!("{said} > {before}");
    browser.until(text, &sent).await;
    browser.run("window.same = true").await;
}

/// The answer, without a reload.
async fn answered(browser: &Browser, text: &str) {
    browser.until_last(".answer .text", text).await;
    assert_eq!(browser.run("return window.same").await, Value::Bool(true));
}

/// On a phone nothing is wider than the screen.
async fn fits(browser: &Browser, page: &str) {
    browser.resize(390, 800).await;
    let wide = "return [document.scrollingElement.scrollWidth, innerWidth]";
    let widths = browser.run(wide).await;
    assert!(widths[0].as_u64() <= widths[1].as_u64(), "{page}: {widths}");
    browser.resize(1200, 900).await;
}

/// A sentence of the page that comes next.
async fn told(browser: &Browser, selector: &str, words: &str) {
    let (selector, wanted) = (json!(selector), json!(words));
    let script = format!(
        "return document.querySelector({selector})?.textContent.includes({wanted}) === true"
    );
    browser.until(words, &script).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_works_by_the_page() {
    let mut server = Server::new(env!("CARGO_BIN_EXE_mayfly-under-test"))
        .env("MAYFLY__HTTP__LISTEN", "127.0.0.1:0");
    server.start();
    let browser = signed_in(&server).await;
    browser.press("#new").await;
    say(&browser, "echo hello > f; echo hi").await;
    answered(&browser, "hi").await;
    browser.until_last("#ticks > li .badge.good", "done").await;
    browser.until_last("#ticks .here", "now here").await;
    fits(&browser, "chat").await;

    browser.press("#ticks .line").await;
    browser.until_last(".diff .add", "+hello").await;
    browser.until_last(".file h3", "work/f").await;
    fits(&browser, "tick").await;
    browser.press("main p a").await;

    say(&browser, "echo more >> f; cat f").await;
    answered(&browser, "hello\nmore").await;
    browser
        .press("#ticks > li:last-child a[href$=rollback]")
        .await;
    fits(&browser, "question").await;
    browser.press("#yes").await;
    told(&browser, ".told", "has the state after tick").await;
    told(&browser, ".told", "forward again with").await;
    say(&browser, "cat f").await;
    answered(&browser, "hello").await;

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a b.txt");
    std::fs::write(&file, "from outside").expect("it is written");
    browser.write("#files", file.to_str().expect("UTF-8")).await;
    let copy = "mkdir -p send; cp received/a* send/out.txt; cat received/a*";
    say(&browser, copy).await;
    answered(&browser, "from outside").await;
    let both = "return [...document.querySelectorAll('.files a')].map(a => a.innerText)";
    assert_eq!(browser.run(both).await, json!(["a b.txt", "out.txt"]));
    let read = "const links = [...document.querySelectorAll('.files a')];
         const all = await Promise.all(links.map(a => fetch(a.href)));
         return Promise.all(all.map(async a => [await a.text(), a.headers.get('content-disposition').split(';')[0]]))";
    let saved = json!(["from outside", "attachment"]);
    assert_eq!(browser.run(read).await, json!([saved, saved]));

    let origin = browser.address().await;
    browser.press("#fork").await;
    browser.press("#yes").await;
    told(&browser, ".told", "a fork of").await;
    assert_ne!(
        browser.address().await.split('#').next(),
        origin.split('#').next()
    );
    say(&browser, "echo fork >> f; cat f").await;
    answered(&browser, "hello\nfork").await;
    browser.open(&origin).await;
    say(&browser, "cat f").await;
    answered(&browser, "hello").await;

    say(&browser, "sleep 60").await;
    browser.until_last("#agent-state", "running").await;
    browser.press("#undo").await;
    browser.press("#yes").await;
    told(&browser, ".refused", "has a running tick").await;
    browser.press("main .button").await;
    browser.press("#stop").await;
    told(&browser, ".told", "is being ended").await;
    browser.until_last("#agent-state", "at rest").await;
    browser
        .until_last("#ticks > li:first-child .line .badge", "cancelled")
        .await;

    let said: Vec<String> = browser
        .console()
        .into_iter()
        .filter(|line| !line.contains("the server responded with a status of 409"))
        .collect();
    assert_eq!(said, Vec::<String>::new());
    browser.end().await;
    server.stop();
    server.assert_nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_is_written_is_run() {
    let mut server = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"));
    server.start();
    let browser = signed_in(&server).await;
    browser.press("#new").await;
    let hostile = "<img src=x onerror=window.hit=1><script>window.hit=1</script>";
    let name = "<img src=x onerror=window.hit=1>";
    let line = format!("echo '{hostile}' > f; echo x > '{name}'; cat f");
    say(&browser, &line).await;
    answered(&browser, hostile).await;
    browser.until_last("#ticks > li .badge.good", "done").await;
    browser.until_last("#agent-state", "at rest").await;
    let seen =
        "return [window.hit === undefined, document.querySelectorAll('img, main script').length]";
    assert_eq!(browser.run(seen).await, json!([true, 0]));
    browser.press("#ticks .line").await;
    browser
        .until_last(".file:last-child .add", &format!("+{hostile}"))
        .await;
    assert!(browser.shown().await.contains(name));
    assert_eq!(browser.run(seen).await, json!([true, 0]));
    assert_eq!(browser.console(), Vec::<String>::new());

    // Were a mark to come through, the policy keeps it from running; this also shows that the
    // console would have told.
    browser
        .run("const mark = document.createElement('div'); mark.innerHTML = '<img src=x onerror=\"window.hit=1\">'; document.body.append(mark)")
        .await;
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut console = Vec::new();
    while !console
        .iter()
        .any(|line: &String| line.contains("Content Security Policy"))
    {
        assert!(Instant::now() < deadline, "{console:?}");
        console.extend(browser.console());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(
        browser.run("return window.hit === undefined").await,
        Value::Bool(true)
    );
    browser.end().await;
}
