// Keeps "3 min ago" true while a page stays open. The words are those of the `when` filter.
"use strict";
{
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

  const distance = (seconds) => {
    const [size, unit] = units.find(([length]) => seconds >= length) || [1, "s"];
    return `${Math.floor(seconds / size)} ${unit}`;
  };

  const refresh = () => {
    for (const time of document.querySelectorAll("time[data-relative]")) {
      const seconds = Math.round((Date.now() - new Date(time.dateTime)) / 1000);
      const text = seconds >= 0 ? `${distance(seconds)} ago` : `in ${distance(-seconds)}`;
      if (time.textContent !== text) time.textContent = text;
    }
  };

  setInterval(refresh, 1000);
}
