"use strict";

// Copy buttons are hidden in the markup, since they do nothing without this script.
function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Over plain HTTP there is no clipboard API.
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  return Promise.resolve();
}

function showCopied(button) {
  const use = button.querySelector("use");
  use.setAttribute("href", "#s-succeeded");
  document.getElementById("said").textContent = "Copied.";
  setTimeout(() => use.setAttribute("href", "#i-copy"), 1500);
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", () =>
    copyText(button.dataset.copy).then(() => showCopied(button)),
  );
}

// The end of a log is what one looks for, unless the address names a line.
for (const log of document.querySelectorAll(".log")) {
  if (!location.hash.startsWith("#L")) log.scrollTop = log.scrollHeight;
}
