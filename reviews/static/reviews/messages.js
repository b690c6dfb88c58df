// After something was done, the keyboard and the reader's voice begin at what it led to.
"use strict";
{
  // What has to be corrected comes first, also where a notice stands above it.
  const target =
    document.querySelector(".error-summary") ?? document.querySelector(".changed[role=alert], ul.messagelist");
  if (target) {
    target.tabIndex = -1;
    target.focus({ preventScroll: false });
  }
}
