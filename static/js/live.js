"use strict";

// Fetches the page again every few seconds and puts in what it shows now. What has the
// focus keeps it, and nothing is fetched while nobody looks or while it is paused.
const EVERY_MS = 3000;
const live = document.getElementById("live");
let isPaused = false;

function showPause() {
  const button = document.getElementById("pause");
  button.hidden = false;
  button.setAttribute("aria-pressed", String(isPaused));
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.setAttribute("aria-pressed", String(isPaused));
    document.getElementById("said").textContent = isPaused ? "Paused." : "Live again.";
  });
}

function put(html) {
  const page = new DOMParser().parseFromString(html, "text/html");
  const fresh = page.getElementById("live");
  if (!fresh) return; // logged out meanwhile: what is shown stays
  const focused = document.activeElement;
  const where = live.contains(focused) ? focused.id || focused.getAttribute("href") : null;
  live.replaceChildren(...fresh.childNodes);
  showPause();
  if (!where) return;
  const again = document.getElementById(where) || live.querySelector(`[href="${CSS.escape(where)}"]`);
  if (again) again.focus({ preventScroll: true });
}

async function refresh() {
  const isSelecting = String(document.getSelection()) !== "";
  if (!isPaused && !document.hidden && !isSelecting) {
    try {
      const answer = await fetch(live.dataset.live, { headers: { Accept: "text/html" } });
      if (answer.ok) put(await answer.text());
    } catch {
      // The server is away: the time of the last look is on the page.
    }
  }
  setTimeout(refresh, EVERY_MS);
}

showPause();
setTimeout(refresh, EVERY_MS);
