// Looks again while something may change, and puts only what changed in its place. Everything works
// without it, by hand.
"use strict";

const OFTEN = 1000;
const SELDOM = 5000;
const AWAY = "Mayfly does not answer: looking again …";
const OUT = "Signed out: mayfly page prints a new link.";

const connection = document.getElementById("connection");

// Parts with an id of their own stay, so that focus and selection outlive what happens around them.
function renew(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (!old.hasAttribute("data-parts") || !fresh.hasAttribute("data-parts")) {
    old.replaceWith(fresh);
    return;
  }
  const known = new Map([...old.children].map((part) => [part.id, part]));
  let at = old.firstElementChild;
  for (const part of [...fresh.children]) {
    const same = known.get(part.id);
    known.delete(part.id);
    if (same === undefined) {
      old.insertBefore(part, at);
      continue;
    }
    if (same === at) at = at.nextElementSibling;
    else old.insertBefore(same, at);
    renew(same, part);
  }
  for (const gone of known.values()) gone.remove();
}

function atEnd() {
  const page = document.scrollingElement;
  return page.scrollHeight - page.scrollTop - page.clientHeight < 120;
}

function toEnd() {
  window.scrollTo(0, document.scrollingElement.scrollHeight);
}

function take(page) {
  const focused = document.activeElement?.id;
  const follow = document.getElementById("talk") !== null && atEnd();
  for (const old of document.querySelectorAll("[data-live]")) {
    const fresh = page.getElementById(old.id);
    if (fresh !== null) renew(old, fresh);
  }
  if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
  document.body.toggleAttribute("data-busy", page.body.hasAttribute("data-busy"));
  if (follow) toEnd();
}

async function look() {
  const answer = await fetch(location.pathname + location.search, { redirect: "error" });
  if (answer.status === 401) {
    connection.textContent = OUT;
    return false;
  }
  if (answer.ok) take(new DOMParser().parseFromString(await answer.text(), "text/html"));
  connection.textContent = "";
  return true;
}

async function watch() {
  while (document.querySelector("[data-live]") !== null) {
    const pause = document.body.hasAttribute("data-busy") ? OFTEN : SELDOM;
    await new Promise((wake) => setTimeout(wake, pause));
    if (document.hidden) continue;
    try {
      if (!(await look())) return;
    } catch {
      connection.textContent = AWAY;
    }
  }
}

document.documentElement.classList.add("script");
const text = document.getElementById("text");
text?.addEventListener("keydown", (key) => {
  if (key.key === "Enter" && (key.ctrlKey || key.metaKey)) text.form.requestSubmit();
});
if (location.hash === "#say") {
  text?.focus();
  toEnd();
}
// A sentence is told once; a reload or a bookmark is of the page itself.
if (new URLSearchParams(location.search).has("told")) history.replaceState(null, "", location.pathname);
watch();
