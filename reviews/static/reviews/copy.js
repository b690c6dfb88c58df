// The buttons that copy a finding's address, its code or its patch. Without scripts the code can be selected
// and the patch downloaded.
"use strict";
{
  const said = document.createElement("div");
  said.className = "sr-only";
  said.setAttribute("role", "status");
  document.body.append(said);

  // Browsers offer the clipboard to pages of HTTPS only; the old way works everywhere.
  const copy = async (text) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "sr-only";
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    if (!done) throw new Error("refused");
    return undefined;
  };
  const SIGN_IN = new Error("Sign in again");
  const textOf = async (button) => {
    if (button.dataset.copyLink) return new URL(button.dataset.copyLink, location.href).href;
    if (button.dataset.copyPatch) {
      const answer = await fetch(button.dataset.copyPatch);
      if (answer.redirected) throw SIGN_IN; // the answer is the login page
      if (!answer.ok) throw new Error(answer.status);
      return answer.text();
    }
    return button.dataset.copyFix;
  };
  const show = () => {
    for (const button of document.querySelectorAll(".copies button[hidden]")) button.hidden = false;
  };

  document.addEventListener("click", async (event) => {
    const button = event.target.closest(".copies button");
    if (!button) return;
    let word = "Copied";
    try { await copy(await textOf(button)); } catch (error) {
      word = error === SIGN_IN ? error.message : "Could not be copied";
    }
    said.textContent = word;
    button.dataset.said = word;
    button.focus();
    setTimeout(() => { delete button.dataset.said; said.textContent = ""; }, 2000);
  });

  show();
  new MutationObserver(show).observe(document.getElementById("content"), {
    childList: true, subtree: true, attributes: true, attributeFilter: ["hidden"], // live.js takes over the server's
  });
}
