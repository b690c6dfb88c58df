// Keyboard shortcuts of the admin's lists. Single letters, so they are off while the user types,
// with a modifier, and when switched off in the list that `?` opens (kept in this browser).
"use strict";
{
  const OFF = "criticizer-keys-off";
  const SHORTCUTS = [
    ["j", "Next row"],
    ["k", "Previous row"],
    ["Enter", "Open the row"],
    ["x", "Select the row"],
    ["n", "Next page"],
    ["p", "Previous page"],
    ["/", "Go to the search"],
    ["Escape", "Leave the search"],
    ["?", "Show this list"],
  ];

  const isOff = () => {
    try {
      return localStorage.getItem(OFF) === "1";
    } catch {
      return false;
    }
  };
  const setOff = (off) => {
    try {
      if (off) localStorage.setItem(OFF, "1");
      else localStorage.removeItem(OFF);
    } catch {
      // Without storage the choice lasts as long as the page.
    }
  };

  const rows = () => [...document.querySelectorAll("#result_list tbody tr")];
  const linkOf = (row) => row && row.querySelector("th a, td a");
  const search = document.getElementById("searchbar");
  let current = -1;

  const select = (index) => {
    const all = rows();
    if (!all.length) return;
    all[current]?.classList.remove("at-row");
    current = Math.max(0, Math.min(all.length - 1, index));
    const row = all[current];
    row.classList.add("at-row");
    // The link takes the focus, so that Enter and screen readers need nothing of ours.
    (linkOf(row) || row).focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  };

  const follow = (selector) => document.querySelector(selector)?.click();

  const make = (name, text) => {
    const element = document.createElement(name);
    if (text) element.textContent = text;
    return element;
  };

  let dialog;
  const showHelp = () => {
    if (!dialog) {
      dialog = make("dialog");
      dialog.className = "keys";
      dialog.setAttribute("aria-labelledby", "keys-title");
      const title = make("h2", "Keyboard shortcuts");
      title.id = "keys-title";
      const list = make("dl");
      for (const [key, meaning] of SHORTCUTS) {
        const term = make("dt");
        term.append(make("kbd", key));
        list.append(term, make("dd", meaning));
      }
      const label = make("label", " Single-key shortcuts are on");
      const box = make("input");
      box.type = "checkbox";
      box.checked = !isOff();
      box.addEventListener("change", () => setOff(!box.checked));
      label.prepend(box);
      const close = make("button", "Close");
      close.type = "button";
      close.className = "button";
      close.addEventListener("click", () => dialog.close());
      dialog.append(title, list, label, close);
      document.body.append(dialog);
    }
    if (!dialog.open) dialog.showModal();
  };

  const ACTIONS = {
    j: () => select(current + 1),
    k: () => select(current < 0 ? 0 : current - 1),
    Enter: () => linkOf(rows()[current])?.click(),
    x: () => rows()[current]?.querySelector("input.action-select")?.click(),
    n: () => follow(".keyset-pages a[rel=next]"),
    p: () => follow(".keyset-pages a[rel=prev]"),
    "/": () => search && (search.focus(), search.select()),
    "?": showHelp,
  };

  const isTyping = (element) =>
    element instanceof HTMLElement &&
    (element.isContentEditable ||
      ["TEXTAREA", "SELECT"].includes(element.tagName) ||
      (element.tagName === "INPUT" && !["checkbox", "radio", "button", "submit"].includes(element.type)));

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.key === "Escape" && event.target === search) {
      search.blur();
      return;
    }
    if (isTyping(event.target) || dialog?.open || isOff()) return;
    // Enter belongs to whatever has the focus, unless nothing has it.
    if (event.key === "Enter" && event.target !== document.body) return;
    const action = Object.hasOwn(ACTIONS, event.key) && ACTIONS[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });

  for (const button of document.querySelectorAll("[data-keys-help]")) {
    button.hidden = false;
    button.addEventListener("click", showHelp);
  }
}
