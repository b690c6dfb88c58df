// The tabs of a review: folded diffs are fetched when they are opened, files are marked as viewed, keys move
// around and give verdicts. The keys can be turned off in their list (WCAG 2.1.4).
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
    if (!file.querySelector(".viewed")) return; // the comparison of versions has no marks
    const kept = Object.entries(marks()).filter(([path]) => path !== file.dataset.path).slice(-500);
    if (isViewed) kept.push([file.dataset.path, file.dataset.content]);
    try { localStorage.setItem(STORE, JSON.stringify(Object.fromEntries(kept))); } catch { /* private mode */ }
    show(file, isViewed);
  };
  const show = (file, isViewed) => {
    file.classList.remove("is-shown");
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

  // Replaces a fold by the lines of its file, and returns the promise of it.
  const load = async (details, from) => {
    const address = from || details.dataset.src;
    delete details.dataset.src;
    try {
      const answer = await fetch(address, { headers: { "X-Requested-With": "fetch" } });
      if (!answer.ok) throw new Error(answer.status);
      const body = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".file-body");
      const file = details.closest("section.file");
      for (const old of file.querySelectorAll(":scope > article.finding")) old.remove();
      details.replaceWith(document.importNode(body, true));
      file.dataset.loaded = ""; // live.js keeps the lines
    } catch {
      if (from) return location.assign(from);
      details.dataset.src = address;
      details.open = false;
    }
  };
  document.addEventListener("toggle", (event) => {
    const details = event.target;
    if (details.open && details.dataset?.src) load(details);
  }, true);
  const loadContext = (link) => load(link.closest(".file-body"), link.href);
  document.addEventListener("click", (event) => {
    const link = event.target.closest(".more-context a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const file = link.closest("section.file");
    loadContext(link).then(() => { if (!file.contains(document.activeElement)) focusOn(file); });
  });

  // Shows an element inside what is folded. A viewed file is shown until another one is gone to.
  const reveal = (item) => {
    const file = item.closest("section.file");
    for (const other of document.querySelectorAll(".is-shown")) if (other !== file) other.classList.remove("is-shown");
    if (file?.classList.contains("is-viewed")) file.classList.add("is-shown");
    for (let fold = item.parentElement.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  };

  const go = (items, step, isAt) => {
    if (!items.length) return;
    const at = items.findIndex(isAt);
    const from = at >= 0 ? at : items.findIndex((item) => item.getBoundingClientRect().top > 80) - (step > 0 ? 1 : 0);
    const next = items[Math.max(0, Math.min(items.length - 1, from + step))];
    reveal(next);
    return focusOn(next);
  };
  const focusOn = (item) => {
    item.tabIndex = -1;
    item.focus({ preventScroll: true });
    item.scrollIntoView({ block: "start" });
    return item;
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
    const list = document.querySelector(".versions [aria-current]")?.closest("ul");
    const links = list ? [...list.querySelectorAll("a")] : [];
    const next = links[links.findIndex((link) => link.hasAttribute("aria-current")) - step];
    if (next) location.assign(next.href);
  };
  const current = () => document.activeElement.closest("article.finding") || document.querySelector(".finding.is-current");
  const judge = (verdict) => {
    const finding = current();
    if (!finding) return;
    if (verdict === "wont_fix") {
      const details = finding.querySelector(".verdict details");
      if (!details) return;
      details.open = true;
      details.querySelector("button[disabled]")?.remove(); // this key has chosen: Enter says "Won't fix"
      details.querySelector("input[name=reason]").focus();
      return;
    }
    const button = finding.querySelector(`.verdict > form button[value=${verdict}]`);
    if (button) button.click();
  };
  // A link leads to a finding, to a file or to a line of one (`#file-3-L12`), also where the file is folded
  // or viewed; after a verdict the page begins where it was given.
  const resume = async () => {
    const name = location.hash.slice(1);
    const [, fileName] = /^(file-\d+)(?:-[LR]\d+)?$/.exec(name) || [];
    if (!fileName && !name.startsWith("finding-")) return;
    const start = document.getElementById(fileName || name);
    if (!start && /^finding-\d+$/.test(name) && document.getElementById("review-results")) {
      location.replace(`${location.pathname}findings/${name.slice(8)}/`); // on another page of the list, or filtered out
    }
    if (!start) return;
    const file = start.closest("section.file");
    const fold = name !== fileName && file?.querySelector(":scope > details[data-src]");
    if (fold) await load(fold);
    const more = name !== fileName && fileName && !document.getElementById(name) && file.querySelector(".more-context a");
    if (more) await loadContext(more); // the line may be one around the changes
    const item = document.getElementById(name);
    if (!item || name !== location.hash.slice(1)) return; // no such line, or the reader went on
    for (const old of document.querySelectorAll(".is-linked, .finding.is-current")) old.classList.remove("is-linked", "is-current");
    reveal(item);
    focusOn(item);
    item.classList.add(item.matches(".finding") ? "is-current" : "is-linked");
  };
  const OFF = "criticizer-keys-off";
  const areOff = () => {
    try { return localStorage.getItem(OFF) === "yes"; } catch { return false; }
  };
  const HELP = [
    ["n p", "next, previous finding"], ["j k", "next, previous file"],
    ["u", "the finding is useful"], ["w", "it is wrong"], ["i", "it is intended"], ["f", "won't fix, with a reason"], ["z", "take the verdict back"],
    ["[ ]", "older, newer version"], ["c", "compare with the version before"], ["x", "mark the file as viewed"], ["?", "this list"],
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
      const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: !areOff() });
      box.addEventListener("change", () => {
        try { localStorage.setItem(OFF, box.checked ? "no" : "yes"); } catch { /* private mode */ }
      });
      const label = document.createElement("label");
      label.className = "viewed";
      label.append(box, " Single keys are on");
      form.append(label);
      form.append(Object.assign(document.createElement("button"), { textContent: "Close" }));
      dialog.append(title, list, form);
      document.body.append(dialog);
    }
    if (!dialog.open) dialog.showModal();
  };
  const KEYS = {
    n: () => toFinding(1), p: () => toFinding(-1), j: () => toFile(1), k: () => toFile(-1),
    u: () => judge("useful"), w: () => judge("wrong"), i: () => judge("intended"), f: () => judge("wont_fix"), z: () => judge("undone"),
    "[": () => toVersion(-1), "]": () => toVersion(1), "?": help, c: () => document.getElementById("compare")?.click(),
    x: () => {
      const file = document.activeElement && document.activeElement.closest("section.file");
      if (!file) return;
      setViewed(file, !file.classList.contains("is-viewed"));
      focusOn(file); // what had the focus may be hidden now
    },
  };
  document.addEventListener("keydown", (event) => {
    if (areOff() || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
    if (Object.hasOwn(KEYS, event.key)) {
      event.preventDefault();
      KEYS[event.key]();
    }
  });
  document.addEventListener("click", (event) => { if (event.target.closest("#keys-help")) help(); });

  prepare();
  resume();
  window.addEventListener("hashchange", resume);
  new MutationObserver(prepare).observe(document.getElementById("content"), {
    childList: true, subtree: true, attributes: true, attributeFilter: ["hidden"], // live.js takes over the server's
  });
}
