// Keeps the parts of a page that change while work goes on up to date.
//
// `<main data-live="address" data-live-next="2" data-live-have="…">` asks the address every
// `next` seconds and patches the elements that have the same id as one of the answer's. The
// server steers by two headers (see criticizer/live_pages.py): X-Live-Next, X-Live-Have.
"use strict";
{
  const root = document.querySelector("[data-live]");
  const controls = document.getElementById("live-controls");
  const toggle = document.getElementById("live-toggle");
  const note = document.getElementById("live-note");
  const SLOWEST_SECONDS = 30;
  const GIVE_UP_MS = 10000;

  let have = root.dataset.liveHave || "";
  let seconds = Number(root.dataset.liveNext) || 0;
  let failures = 0;
  let timer = 0;
  let paused = false;
  let shownAt = new Date();

  const say = (text) => {
    if (note.textContent !== text) note.textContent = text;
    note.hidden = !text;
  };

  const stop = () => {
    seconds = 0;
    controls.hidden = true;
  };

  const schedule = (delay) => {
    clearTimeout(timer);
    if (seconds && !paused && !document.hidden) timer = setTimeout(ask, delay * 1000);
  };

  const findingsOf = (file) => [...file.querySelectorAll("article.finding")].map(({ id }) => id).sort().join();
  // A folded file whose lines files.js has fetched: the server's answer has it folded.
  const isOpened = (old, fresh) =>
    old.dataset?.loaded === "" && old.dataset.content === fresh.dataset.content && findingsOf(old) === findingsOf(fresh);

  // Patches `old` until it equals `fresh`, touching only what differs: focus, open details,
  // running animations and live regions stay. Children with an id keep their identity.
  const patch = (old, fresh) => {
    if (old.isEqualNode(fresh) || isOpened(old, fresh)) return;
    if (old.nodeName !== fresh.nodeName) {
      old.replaceWith(document.importNode(fresh, true));
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      old.nodeValue = fresh.nodeValue;
      return;
    }
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    let at = old.firstChild;
    for (const child of fresh.childNodes) {
      const same = child.id ? [...old.children].find(({ id }) => id === child.id) : at?.id ? null : at;
      if (!same) {
        old.insertBefore(document.importNode(child, true), at);
        continue;
      }
      if (same !== at) old.insertBefore(same, at);
      at = same.nextSibling;
      patch(same, child);
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  };

  const swap = (html) => {
    const parsed = new DOMParser().parseFromString(html, "text/html");
    for (const fresh of parsed.body.children) {
      const old = fresh.id && document.getElementById(fresh.id);
      if (old) patch(old, fresh);
    }
  };

  const failed = (why) => {
    failures += 1;
    const delay = Math.min(SLOWEST_SECONDS, seconds * 2 ** failures);
    say(`${why} What you see is from ${shownAt.toLocaleTimeString()}. Trying again in ${delay} s.`);
    schedule(delay);
  };

  async function ask() {
    const address = new URL(root.dataset.live, location.href);
    address.searchParams.set("have", have);
    let answer;
    let html = "";
    try {
      answer = await fetch(address, { redirect: "manual", signal: AbortSignal.timeout(GIVE_UP_MS) });
      if (answer.status === 200) html = await answer.text();
    } catch {
      return failed("The server cannot be reached.");
    }
    if (answer.type === "opaqueredirect") {
      stop();
      return say("You are logged out. Reload the page and log in to go on.");
    }
    if (answer.status === 404) {
      stop();
      return say("What this page shows does not exist any more.");
    }
    if (!answer.ok) return failed("The server answered with an error.");
    if (paused) return undefined;
    failures = 0;
    shownAt = new Date();
    say("");
    have = answer.headers.get("X-Live-Have") || "";
    if (html) swap(html);
    seconds = Number(answer.headers.get("X-Live-Next")) || 0;
    if (!seconds) return stop();
    return schedule(seconds);
  }

  toggle.addEventListener("click", () => {
    paused = !paused;
    toggle.textContent = paused ? "Resume updates" : "Pause updates";
    say(paused ? `Paused. What you see is from ${shownAt.toLocaleTimeString()}.` : "");
    schedule(0);
  });
  document.addEventListener("visibilitychange", () => schedule(0));

  if (seconds) {
    controls.hidden = false;
    schedule(seconds);
  }
}
