// The form that dismisses a finding with a reason: its field has the focus as soon as the form opens.
"use strict";
document.addEventListener("toggle", (event) => {
  if (event.target.open && event.target.matches(".verdict details")) event.target.querySelector("input[name=reason]").focus();
}, true);
