// The API's description follows the colour theme that was chosen on the pages, or the system's.
// Swagger UI draws itself dark below `html.dark-mode`. Runs before anything is drawn.
"use strict";
{
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const chosen = localStorage.getItem("theme");
    const isDark = chosen === "dark" || (chosen !== "light" && dark.matches);
    document.documentElement.classList.toggle("dark-mode", isDark);
  };
  dark.addEventListener("change", apply);
  addEventListener("storage", apply);
  apply();
}
