// Asks for the state of the pool a few times per second, and shows it. All texts are set as text, never as markup.
"use strict";

const $ = (id) => document.getElementById(id);
const viewer = Array.from(crypto.getRandomValues(new Uint8Array(8)), (one) => one.toString(16).padStart(2, "0")).join("");

const view = { first: 0, count: 16, picked: null, since: 0, pictures: true, state: null, misses: 0, timer: 0, busy: false };
const cells = new Map(); // by env id, for the envs on the page

// ---- numbers as people read them --------------------------------------------------------------

function short(number) {
  if (number === null || number === undefined) return "–";
  for (const [unit, letter] of [[1e9, " G"], [1e6, " M"], [1e3, " k"]])
    if (Math.abs(number) >= unit * (unit === 1e3 ? 10 : 1)) {
      const value = number / unit;
      return value.toFixed(Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0) + letter;
    }
  return Number.isInteger(number) ? String(number) : number.toFixed(Math.abs(number) < 10 ? 2 : 1);
}
const percent = (part) => `${(100 * part).toFixed(part < 0.1 ? 1 : 0)} %`;

function every(seconds) {
  if (seconds === null) return null;
  return seconds < 0.15 ? `${Math.round(1 / seconds)} times per second` : `every ${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
}

// ---- asking ---------------------------------------------------------------------------------

async function ask() {
  clearTimeout(view.timer);
  if (document.hidden || view.busy) return;
  view.busy = true;
  const { since } = view;
  const query = new URLSearchParams({ viewer, first: view.first, count: view.count, since });
  if (view.picked !== null) query.set("picked", view.picked);
  const [top, bottom] = envsInSight();
  if (view.pictures && top <= bottom) [["top", top], ["bottom", bottom]].forEach((one) => query.set(...one));
  try {
    const answer = await fetch(`state?${query}`, { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    show(await answer.json(), since);
    view.misses = 0;
  } catch (error) {
    view.misses += 1;
  }
  view.busy = false;
  showStatus();
  view.timer = setTimeout(ask, view.misses ? 2000 : isPlayed() ? 33 : view.picked === null ? 250 : 100);
}

// Whether the envs are only played to be seen: then they are drawn as often as an eye can follow.
function isPlayed() {
  const { state } = view;
  return Boolean(state && state.control && !state.control.paused && state.pictures.any);
}

// The first and the last env on the page that the window shows: only these are drawn.
function envsInSight() {
  let top = Infinity, bottom = -1;
  for (const [id, cell] of cells) {
    const box = cell.root.getBoundingClientRect();
    if (box.bottom > 0 && box.top < window.innerHeight) [top, bottom] = [Math.min(top, id), Math.max(bottom, id)];
  }
  return cells.size ? [top, bottom] : [view.first, view.first + view.count - 1];
}

async function command(name, speed) {
  try {
    await fetch("command", { method: "POST", body: JSON.stringify({ command: name, speed: speed ?? null }) });
  } catch (error) {
    view.misses += 1;
  }
  ask();
}

// ---- showing --------------------------------------------------------------------------------

function show(state, since) {
  view.state = state;
  document.title = `${state.name} – stepmill watch`;
  $("name").textContent = state.name;
  $("facts").textContent = state.facts.join(" · ");
  showControls(state.control);
  showTotals(state);
  showWorkers(state.workers);
  showErrors(state.errors);
  showSampling(state.pictures, state.envs.length);
  showGrid(state);
  const known = [...state.envs, state.picked].filter(Boolean);
  known.forEach((env) => replay.keep(env));
  replay.forgetOthers(new Set(known.map((env) => env.id)));
  showPicked(state.picked, state.pictures);
  if (since === view.since) view.since = state.until; // else the user has turned to other envs meanwhile
}

function showStatus() {
  const lost = view.misses > 1, control = view.state && view.state.control;
  $("lost").hidden = !lost;
  const [text, kind] = lost ? ["ended", "bad"] : !view.state ? ["connecting", "still"] : control && control.paused ? ["paused", "still"] : ["live", ""];
  $("status").textContent = text;
  $("status").className = `status ${kind}`;
}

function showControls(control) {
  $("driving").hidden = !control;
  $("pictures").hidden = Boolean(control) || !(view.state.pictures.any);
  if (!control) return void ($("keys").textContent = "This page cannot pause the run, only its pictures. Keys: P pictures · ← → other envs · R replay the picked env · Esc close it");
  $("keys").textContent = "Keys: space pause · S step · ← → other envs · R replay the picked env · Esc close it";
  $("pause").textContent = control.paused ? "Resume" : "Pause";
  $("pause").classList.toggle("primary", control.paused);
  if (document.activeElement !== $("speed")) {
    const value = control.speed === null ? "" : String(control.speed);
    if (![...$("speed").options].some((one) => one.value === value)) $("speed").add(new Option(`${short(control.speed)} per second`, value));
    $("speed").value = value;
  }
}

function showTotals({ totals, history }) {
  $("rate").textContent = short(totals.steps_per_second < 10 ? totals.steps_per_second : Math.round(totals.steps_per_second));
  $("return").textContent = short(totals.return);
  $("recent").textContent = totals.recent;
  $("steps").textContent = short(totals.steps);
  $("episodes").textContent = short(totals.episodes);
  $("best").textContent = short(totals.best_return);
  $("length").textContent = totals.length === null ? "–" : short(Math.round(totals.length * 10) / 10);
  $("restarts-row").hidden = !totals.restarts;
  $("restarts").textContent = short(totals.restarts);
  charts.line($("rate-chart"), history.rate, true);
  charts.line($("return-chart"), history.returns, false);
}

function showWorkers(workers) {
  const list = $("workers");
  while (list.children.length > workers.length) list.lastChild.remove();
  while (list.children.length < workers.length) {
    const row = document.createElement("li");
    row.append(document.createElement("span"), document.createElement("span"), document.createElement("meter"));
    list.append(row);
  }
  workers.forEach((worker, i) => {
    const [name, use, meter] = list.children[i].children;
    name.textContent = worker.name;
    name.title = worker.pid ? `process ${worker.pid}` : "";
    use.textContent = worker.alive ? percent(worker.use) : "ended";
    list.children[i].classList.toggle("dead", !worker.alive);
    meter.value = worker.alive ? worker.use : 0;
    meter.setAttribute("aria-label", `${worker.name}: ${use.textContent}`);
  });
  const mean = workers.reduce((sum, one) => sum + one.use, 0) / (workers.length || 1);
  $("use").textContent = workers.length > 1 ? `${percent(mean)} on average` : "";
}

let errorsShown = "";
function showErrors(errors) {
  const box = $("errors"), key = errors.map((one) => one.at).join();
  box.hidden = !errors.length;
  if (key === errorsShown || !errors.length) return;
  errorsShown = key;
  const last = errors[errors.length - 1];
  box.querySelector("summary").textContent = `${errors.length === 1 ? "A failure" : `The last ${errors.length} failures`}: ${last.text.split("\n")[0]}`;
  box.querySelector("ol").replaceChildren(...errors.slice().reverse().map((one) => {
    const item = document.createElement("li");
    item.textContent = `${new Date(one.at * 1000).toLocaleTimeString()}  ${one.text}`;
    return item;
  }));
}

function showSampling(pictures, count) {
  const paused = view.state.control && view.state.control.paused;
  const parts = [];
  if (pictures.any) {
    const often = every(pictures.every);
    if (!view.pictures) parts.push("Pictures are paused; the run goes on.");
    else if (paused) parts.push("Paused: every step is drawn.");
    else parts.push(often ? `A picture of each env ${often}.` : "Waiting for pictures.");
    if (view.pictures && !paused) parts.push(`Drawing takes ${percent(pictures.share)} of the workers’ time, ${percent(pictures.limit)} at most.`);
  }
  if (pictures.note) parts.push(pictures.note);
  $("sampling").textContent = parts.join(" ");
}

function showGrid(state) {
  const grid = $("grid"), envs = state.envs;
  const count = envs.length;
  grid.className = `grid ${count <= 4 ? "few" : count > 36 ? "many" : ""}`;
  const last = state.first + count - 1;
  $("range").textContent = count === state.num_envs ? `all ${count}` : `envs ${state.first}–${last} of ${state.num_envs}`;
  for (const id of ["previous", "next", "goto"]) $(id).hidden = count === state.num_envs && state.first === 0;
  $("previous").disabled = state.first === 0;
  $("next").disabled = last + 1 >= state.num_envs;
  $("goto").max = state.num_envs - 1;
  const wanted = new Set(envs.map((one) => one.id));
  for (const [id, cell] of cells) if (!wanted.has(id)) { cell.root.remove(); cells.delete(id); }
  envs.forEach((env, i) => {
    if (!cells.has(env.id)) cells.set(env.id, newCell(env.id));
    const cell = cells.get(env.id);
    if (grid.children[i] !== cell.root) grid.insertBefore(cell.root, grid.children[i] || null);
    fillCell(cell, env, state.pictures.any);
  });
}

function newCell(id) {
  const make = (tag, name, ...inner) => { const one = document.createElement(tag); one.className = name; one.append(...inner); return one; };
  const cell = { id, image: make("img", ""), text: make("pre", ""), wait: make("span", "wait"), curve: make("canvas", ""), small: make("canvas", "") };
  [cell.label, cell.value, cell.step, cell.last] = [make("span", "label"), make("span", "value"), make("span", "quiet"), make("span", "quiet")];
  cell.image.alt = "";
  cell.image.hidden = cell.text.hidden = true;
  cell.root = make("button", "cell", make("div", "screen", cell.image, cell.text, cell.curve, cell.wait), make("div", "caption", cell.label, cell.value, cell.step, cell.last), cell.small);
  cell.root.type = "button";
  cell.root.dataset.env = id;
  cell.root.addEventListener("click", () => pick(view.picked === id ? null : id));
  return cell;
}

function fillCell(cell, env, anyPictures) {
  cell.label.textContent = `env ${env.id}`;
  cell.value.textContent = short(env.return);
  cell.value.title = "the return of this episode so far";
  cell.step.textContent = `step ${env.step}`;
  cell.last.textContent = env.failures ? `${env.failures} failed` : env.last_return === null ? "" : `last ${short(env.last_return)}`;
  if (env.failures > (cell.failures ?? env.failures)) cell.failedAt = Date.now();
  cell.failures = env.failures;
  cell.root.classList.toggle("failed", Date.now() - (cell.failedAt ?? 0) < 5000);
  cell.root.setAttribute("aria-pressed", String(view.picked === env.id));
  cell.root.setAttribute("aria-label", `env ${env.id}, return ${short(env.return)}, step ${env.step}`);
  setPicture(cell.image, cell.text, env.picture);
  const shown = !cell.image.hidden || !cell.text.hidden;
  const failure = env.picture && env.picture.failure;
  cell.curve.hidden = anyPictures;
  cell.small.hidden = !anyPictures;
  if (failure !== undefined && env.picture) cell.failure = failure;
  cell.wait.textContent = cell.failure || "not drawn yet";
  cell.wait.hidden = shown || !anyPictures;
  charts.rewards(anyPictures ? cell.small : cell.curve, env.rewards, []);
}

function setPicture(image, text, picture) {
  if (!picture || picture.png === undefined) return; // as it was
  if (picture.png) image.src = `data:image/png;base64,${picture.png}`;
  image.hidden = !picture.png;
  text.textContent = picture.text || "";
  text.hidden = !picture.text;
}

function showPicked(env, pictures) {
  $("panel").hidden = !env;
  if (!env) return;
  $("picked-name").textContent = `env ${env.id}`;
  if (!replay.on) setPicture($("picked-image"), $("picked-text"), env.picture);
  replay.show(pictures.any);
  $("panel").querySelector(".screen").hidden = !pictures.any;
  const paused = view.state.control && view.state.control.paused;
  const often = paused ? "at every step" : every(pictures.picked_every);
  $("picked-every").hidden = !pictures.any;
  if (!replay.on) $("picked-every").textContent = !pictures.any || !env.picture ? "" : `Drawn ${often || "now and then"}; this picture is ${env.picture.age.toFixed(1)} s old.`;
  $("picked-return").textContent = short(env.return);
  $("picked-step").textContent = env.step;
  $("picked-last").textContent = short(env.last_return);
  $("picked-episodes").textContent = short(env.episodes);
  $("picked-failures-row").hidden = !env.failures;
  $("picked-failures").textContent = env.failures;
  const rewards = env.rewards.filter((one) => one !== null);
  $("reward-range").textContent = rewards.length ? `${rewards.length} of them, from ${short(Math.min(...rewards))} to ${short(Math.max(...rewards))}; now ${short(rewards[rewards.length - 1])}` : "none yet";
  charts.rewards($("reward-chart"), env.rewards, env.ends);
  fillTable($("observation"), env.observation);
  fillTable($("info"), env.info);
  $("info-title").hidden = !env.info.length;
}

function fillTable(table, rows) {
  table.replaceChildren(...rows.map(([name, value]) => {
    const row = document.createElement("tr");
    if (name) row.append(Object.assign(document.createElement("th"), { textContent: name, scope: "row" }));
    row.append(Object.assign(document.createElement("td"), { textContent: value, colSpan: name ? 1 : 2 }));
    return row;
  }));
}

// ---- what the user does -----------------------------------------------------------------------

function pick(env) {
  replay.on = null;
  view.picked = env;
  view.since = 0; // the panel has no picture yet
  $("picked-image").hidden = $("picked-text").hidden = true;
  for (const cell of cells.values()) cell.root.setAttribute("aria-pressed", String(cell.id === env));
  if (env === null) $("panel").hidden = true;
  ask();
}

function turnTo(first) {
  const most = view.state ? view.state.num_envs - 1 : 0;
  view.first = Math.max(0, Math.min(first, most));
  view.since = 0;
  ask();
}

function togglePictures() {
  view.pictures = !view.pictures;
  $("pictures").textContent = view.pictures ? "Pause pictures" : "Resume pictures";
  $("pictures").setAttribute("aria-pressed", String(!view.pictures));
  ask();
}

const togglePause = () => command(view.state.control.paused ? "resume" : "pause");

$("pause").addEventListener("click", togglePause);
$("step").addEventListener("click", () => command("step"));
$("speed").addEventListener("change", () => command("speed", $("speed").value ? Number($("speed").value) : null));
$("pictures").addEventListener("click", togglePictures);
$("previous").addEventListener("click", () => turnTo(view.first - view.count));
$("next").addEventListener("click", () => turnTo(view.first + view.count));
$("count").addEventListener("change", () => { view.count = Number($("count").value); turnTo(view.first - (view.first % view.count)); });
$("goto").addEventListener("change", () => {
  const env = Number($("goto").value);
  if ($("goto").value === "" || !Number.isInteger(env) || env < 0 || env >= view.state.num_envs) return;
  turnTo(env - (env % view.count));
  pick(env);
});
$("unpick").addEventListener("click", () => pick(null));
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT)$/.test(event.target.tagName) || !view.state) return;
  const driving = view.state.control, onButton = event.target.tagName === "BUTTON";
  if (event.key === " " && driving && !onButton) { event.preventDefault(); togglePause(); }
  else if (event.key.toLowerCase() === "s" && driving) command("step");
  else if (event.key.toLowerCase() === "p" && !driving) togglePictures();
  else if (event.key.toLowerCase() === "r" && view.picked !== null) replay.toggle();
  else if (event.key === "Escape" && replay.on) replay.goLive();
  else if (event.key === "Escape") pick(null);
  else if (event.key === "ArrowRight" && !$("next").disabled) turnTo(view.first + view.count);
  else if (event.key === "ArrowLeft" && !$("previous").disabled) turnTo(view.first - view.count);
});
document.addEventListener("visibilitychange", ask);
document.addEventListener("scroll", () => { if (!view.busy) { clearTimeout(view.timer); view.timer = setTimeout(ask, 100); } });
window.addEventListener("resize", () => view.state && show({ ...view.state, envs: view.state.envs }));
ask();
