"use strict";
(() => {
  const all = (query, of = document) => [...of.querySelectorAll(query)];
  const make = (name, text, of) => {
    const element = document.createElement(name);
    if (text) element.textContent = text;
    if (of) of.append(element);
    return element;
  };
  // A rank: marked in every picture, and what it holds in words.
  const held = new Map(all("#held tr[data-rank]").map((row) => [row.dataset.rank, row]));
  const cells = all("[data-ranks]").map((cell) => [cell, new Set(cell.dataset.ranks.split(" "))]);
  const ranks = [...new Set([...held.keys(), ...cells.flatMap(([, of]) => [...of])])].sort((a, b) => a - b);
  if (ranks.length > 1) {
    const bar = document.getElementById("ranks");
    const label = make("label", "Rank ", bar);
    const select = make("select", "", label);
    make("option", "all", select).value = "";
    ranks.slice(0, 4096).forEach((rank) => (make("option", rank, select).value = rank));
    const said = make("output", "", bar);
    const show = (rank) => {
      document.body.classList.toggle("one", rank !== "");
      cells.forEach(([cell, of]) => cell.classList.toggle("this", of.has(rank)));
      held.forEach((row, of) => row.classList.toggle("this", of === rank));
      said.textContent = rank === "" ? "Choose a rank, or point at one." : `rank ${rank}: ${held.get(rank)?.lastElementChild.textContent ?? "see the pictures"}`;
    };
    select.addEventListener("change", () => show(select.value));
    cells.forEach(([cell, of]) => {
      cell.addEventListener("pointerenter", () => show([...of][0]));
      cell.addEventListener("pointerleave", () => show(select.value));
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") show((select.value = ""));
    });
    show("");
    bar.hidden = false;
  }
  // Steps, one after the other; without this script all are there.
  all("section.steps").forEach((section) => {
    const figures = all("figure", section);
    const walk = document.createElement("div");
    walk.className = "walk";
    const [before, after, every] = ["Step before", "Next step", "All steps"].map((text) => make("button", text, walk));
    const said = make("span", "", walk);
    said.setAttribute("role", "status");
    let at = -1;
    const show = (to) => {
      at = to;
      figures.forEach((figure, number) => (figure.hidden = at >= 0 && number !== at));
      before.disabled = at <= 0;
      after.disabled = at >= figures.length - 1;
      every.disabled = at < 0;
      said.textContent = at < 0 ? `all ${figures.length} steps` : `step ${at + 1} of ${figures.length}`;
    };
    before.addEventListener("click", () => show(at - 1));
    after.addEventListener("click", () => show(at + 1));
    every.addEventListener("click", () => show(-1));
    section.querySelector("h2").after(walk);
    show(-1);
  });
})();
