// The tab Files: folded diffs are fetched when they are opened, files are marked as viewed, keys move around.
"use strict";
{
  const files = () => [...document.querySelectorAll("section.file")];
  const findings = () => [...document.querySelectorAll("article.finding")];
  const STORE = "criticizer-viewed";

  // A file counts as viewed until its lines change: the mark holds their digest, also where they are folded.
  const marks = () => {
    try { return JSON.parse(localStorage.getItem(STORE)) || {}; } catch { return {}; }
  };
  const setViewed = (file, isViewed) => {
    const kept = Object.entries(marks()).filter(([path]) => path !== file.dataset.path).slice(-500);
    if (isViewed) kept.push([file.dataset.path, file.dataset.content]);
    try { localStorage.setItem(STORE, JSON.stringify(Object.fromEntries(kept))); } catch { /* private mode */ }
    show(file, isViewed);
  };
  const show = (file, isViewed) => {
    file.classList.toggle("is-viewed", isViewed);
    file.querySelector(".viewed input").checked = isViewed;
  };
  const prepare = () => {
    const known = marks();
    for (const file of files()) {
      const label = file.querySelector(".viewed");
      if (!label || !label.hidden) continue;
      label.hidden = false;
      show(file, file.dataset.path in known && known[file.dataset.path] === file.dataset.content);
    }
    const help = document.getElementById("keys-help");
    if (help) help.hidden = false;
  };

  document.addEventListener("change", (event) => {
    const file = event.target.closest(".viewed") && event.target.closest("section.file");
    if (file) setViewed(file, event.target.checked);
  });

  document.addEventListener("toggle", async (event) => {
    const details = event.target;
    if (!details.open || !details.dataset || !details.dataset.src) return;
    const address = details.dataset.src;
    delete details.dataset.src;
    try {
      const answer = await fetch(address, { headers: { "X-Requested-With": "fetch" } });
      if (!answer.ok) throw new Error(answer.status);
      const body = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".file-body");
      const file = details.closest("section.file");
      for (const old of file.querySelectorAll(":scope > article.finding")) old.remove();
      details.replaceWith(document.importNode(body, true));
    } catch {
      details.dataset.src = address;
      details.open = false;
    }
  }, true);

  const go = (items, step, isAt) => {
    if (!items.length) return;
    const at = items.findIndex(isAt);
    const from = at >= 0 ? at : items.findIndex((item) => item.getBoundingClientRect().top > 80) - (step > 0 ? 1 : 0);
    const next = items[Math.max(0, Math.min(items.length - 1, from + step))];
    if (next.closest(".is-viewed")) setViewed(next.closest("section.file"), false);
    next.tabIndex = -1;
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "start" });
    return next;
  };
  const toFinding = (step) => {
    for (const old of document.querySelectorAll(".finding.is-current")) old.classList.remove("is-current");
    const next = go(findings(), step, (item) => item === document.activeElement || item.contains(document.activeElement));
    if (next) next.classList.add("is-current");
  };
  const toFile = (step) => {
    const inside = document.activeElement && document.activeElement.closest("section.file");
    go(files(), step, (item) => item === inside);
  };
  const toVersion = (step) => {
    const links = [...document.querySelectorAll(".versions a")];
    const next = links[links.findIndex((link) => link.hasAttribute("aria-current")) - step];
    if (next) location.assign(next.href);
  };
  const HELP = [
    ["n p", "next, previous finding"], ["j k", "next, previous file"],
    ["[ ]", "older, newer version"], ["x", "mark the file as viewed"], ["?", "this list"],
  ];
  const help = () => {
    let dialog = document.getElementById("keys");
    if (!dialog) {
      dialog = document.createElement("dialog");
      dialog.id = "keys";
      const title = document.createElement("h2");
      title.textContent = "Keys";
      const list = document.createElement("dl");
      for (const [keys, text] of HELP) {
        const term = document.createElement("dt");
        for (const key of keys.split(" ")) term.append(Object.assign(document.createElement("kbd"), { textContent: key }), " ");
        list.append(term, Object.assign(document.createElement("dd"), { textContent: text }));
      }
      const form = document.createElement("form");
      form.method = "dialog";
      form.append(Object.assign(document.createElement("button"), { textContent: "Close" }));
      dialog.append(title, list, form);
      document.body.append(dialog);
    }
    if (!dialog.open) dialog.showModal();
  };
  const KEYS = {
    n: () => toFinding(1), p: () => toFinding(-1), j: () => toFile(1), k: () => toFile(-1),
    "[": () => toVersion(-1), "]": () => toVersion(1), "?": help,
    x: () => {
      const file = document.activeElement && document.activeElement.closest("section.file");
      if (file) setViewed(file, !file.classList.contains("is-viewed"));
    },
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
    if (Object.hasOwn(KEYS, event.key)) {
      event.preventDefault();
      KEYS[event.key]();
    }
  });
  document.addEventListener("click", (event) => { if (event.target.closest("#keys-help")) help(); });

  prepare();
  new MutationObserver(prepare).observe(document.getElementById("content"), { childList: true, subtree: true });
}
