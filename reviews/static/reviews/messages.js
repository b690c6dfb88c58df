// After something was done, the keyboard and the reader's voice begin at what it led to.
"use strict";
{
  const target = document.querySelector(".error-summary, .changed, ul.messagelist");
  if (target) {
    target.tabIndex = -1;
    target.focus({ preventScroll: false });
  }
}
