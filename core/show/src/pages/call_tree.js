// Shows the calls of the page as a tree whose rows are made when their caller is opened.
"use strict";
const { is_memory, all, left_out, functions, calls } = JSON.parse(document.getElementById("calls").textContent);
const body = document.querySelector("tbody");

// What each call calls, most time first, as the calls are sorted. Roots are what -1 calls.
const callees = new Map();
calls.forEach(([caller], call) => {
  if (!callees.has(caller)) callees.set(caller, []);
  callees.get(caller).push(call);
});
const of = (call) => callees.get(call) ?? [];

// A weight in its unit: seconds, or as many of the largest unit of memory that is not more than it.
function inUnit(weight) {
  if (!is_memory) return `${(weight / 1e9).toFixed(3)} s`;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; weight >= 1023.95 && unit + 1 < units.length; unit += 1) weight /= 1024;
  return `${weight.toFixed(unit > 0 ? 1 : 0)} ${units[unit]}`;
}

function amount(weight) {
  const cell = document.createElement("td");
  if (weight > 0) {
    const [percent, amount] = [document.createElement("b"), document.createElement("span")];
    percent.textContent = `${((100 * weight) / all).toFixed(1)} %`;
    amount.textContent = inUnit(weight);
    cell.append(percent, " ", amount);
  }
  return cell;
}

function row(call, level) {
  const [, index, self, total] = calls[call];
  const [name, place] = functions[index];
  const row = document.createElement("tr");
  row.dataset.call = call;
  row.setAttribute("aria-level", level);
  if (of(call).length > 0) row.setAttribute("aria-expanded", "false");
  row.tabIndex = -1;
  const function_ = document.createElement("td");
  function_.style.setProperty("--level", level - 1);
  const where = document.createElement("small");
  where.textContent = place;
  function_.append(name, " ", where);
  row.append(amount(total), amount(self), function_);
  return row;
}

const level = (row) => Number(row.getAttribute("aria-level"));
const isOpen = (row) => row.getAttribute("aria-expanded") === "true";
const canOpen = (row) => row.getAttribute("aria-expanded") === "false";

function open(row_) {
  if (!canOpen(row_)) return;
  row_.setAttribute("aria-expanded", "true");
  row_.after(...of(Number(row_.dataset.call)).map((call) => row(call, level(row_) + 1)));
}

// A chain of calls without a branch is opened to its end.
function openChain(row_) {
  for (let at = row_; canOpen(at); at = at.nextElementSibling) {
    open(at);
    if (of(Number(at.dataset.call)).length !== 1) return;
  }
}

function close(row) {
  row.setAttribute("aria-expanded", "false");
  while (row.nextElementSibling && level(row.nextElementSibling) > level(row)) row.nextElementSibling.remove();
}

function toggle(row) {
  if (isOpen(row)) close(row);
  else openChain(row);
}

function focus(row) {
  if (!row) return;
  body.querySelector("[tabindex='0']")?.setAttribute("tabindex", "-1");
  row.tabIndex = 0;
  row.focus();
}

function caller(row) {
  let at = row.previousElementSibling;
  while (at && level(at) >= level(row)) at = at.previousElementSibling;
  return at;
}

const keys = {
  ArrowDown: (row) => focus(row.nextElementSibling),
  ArrowUp: (row) => focus(row.previousElementSibling),
  ArrowRight: (row) => (canOpen(row) ? openChain(row) : isOpen(row) && focus(row.nextElementSibling)),
  ArrowLeft: (row) => (isOpen(row) ? close(row) : focus(caller(row))),
  Enter: toggle,
  " ": toggle,
};

body.addEventListener("click", (event) => {
  const row = event.target.closest("tr");
  // Who selects text opens nothing.
  if (!row || !getSelection().isCollapsed) return;
  toggle(row);
  focus(row);
});
body.addEventListener("keydown", (event) => {
  const key = keys[event.key];
  if (!key || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  key(event.target.closest("tr"));
});

body.append(...of(-1).map((call) => row(call, 1)));
// The way on which most of the weight is, as long as there is one.
for (let at = body.firstElementChild; at && 2 * calls[at.dataset.call][3] > all; at = at.nextElementSibling) open(at);
if (body.firstElementChild) body.firstElementChild.tabIndex = 0;
const note = document.getElementById("left-out");
if (calls.length === 0) note.textContent = "no samples";
else if (left_out > 0) note.textContent = `${left_out} calls with less are left out`;
